"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from argus.environment import find_tool, variable


@pytest.fixture(scope="session")
def require_tool() -> Callable[..., str]:
    """`require_tool("clang-19", "clang")`: the path of the first program found.

    Without one the test is skipped with the reason; under `CI=true` it fails, so that a green run of the
    continuous integration means that the test ran.
    """

    def require(*names: str) -> str:
        path = find_tool(names)
        if path is not None:
            return path
        reason = f"needs {' or '.join(names)} on PATH"
        if variable("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)

    return require
