"""The end of a block: its shared memory outlives the bulk stores that read it, also those of no group."""

from __future__ import annotations

import pytest

from argus.backend.emit import emit
from argus.ir.nodes import BulkCommit, BulkWait
from tests.reject.case import Case, Edit
from tests.reject.edits import drop

COMMIT, WAIT, WAIT_READ = (f"if (thread == 0) argus::bulk_{name}();" for name in ("commit", "wait<0>", "wait_read<0>"))


def ending(file: str, edit: Edit | None) -> list[str]:
    """Commits and waits of bulk stores, after the last store of a kernel for sm_90a."""
    kernel = Case(file, edit or drop(BulkCommit), "", "", "sm_90a")
    text = emit(kernel.accepted() if edit is None else kernel.rejected())
    rest = text[text.rindex("argus::tma_store") :]
    return [line.strip() for line in rest.splitlines() if line.strip() in (COMMIT, WAIT, WAIT_READ)]


@pytest.mark.parametrize(
    ("edit", "lines"),
    [
        (None, [COMMIT, WAIT]),
        (drop(BulkWait), [COMMIT, WAIT_READ]),
        (drop(BulkCommit), [WAIT, COMMIT, WAIT_READ]),
    ],
)
def test_a_block_ends_after_its_bulk_stores(edit: Edit | None, lines: list[str]) -> None:
    assert ending("examples/linear.py", edit) == lines
