"""One cache for the kernels of these tests, apart from the user's."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARGUS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
