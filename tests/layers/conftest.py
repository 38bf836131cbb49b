"""Where the kernels' results are tested: on the CPU target, and on a GPU if there is one."""

from typing import Any

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, require_tool: Any) -> str:
    """PyTorch's name of the device to run on."""
    if request.param == "cpu":
        require_tool("g++", "clang++", "c++")
    return str(request.param)
