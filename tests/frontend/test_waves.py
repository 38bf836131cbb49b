"""AMD's waves in the language: waits, the bare barrier, hints, and loads to LDS."""

import pytest

from tests.frontend.kernels import elaborate, errors, statements


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("al.s_waitcnt(vmcnt=3)", "s_waitcnt vmcnt 3"),
        ("al.s_waitcnt(lgkmcnt=0)", "s_waitcnt lgkmcnt 0"),
        ("al.s_waitcnt(0, 0)", "s_waitcnt vmcnt 0 lgkmcnt 0"),
        ("al.s_barrier()", "s_barrier"),
        ("al.begin_turns()\nal.end_turns()", "begin_turns\nend_turns"),
        ("al.s_setprio(2)", "s_setprio 2"),
        ("al.sched_group_barrier(0x8, 4)", "sched_group_barrier mask 8 size 4 sync 0"),
        ("al.sched_barrier(0x384)", "sched_barrier mask 900"),
        ("al.sched_group_barrier(0x100, 2, 1)", "sched_group_barrier mask 256 size 2 sync 1"),
    ],
)
def test_statements(call, line):
    assert statements(call, target="gfx942") == line.splitlines()
    other = errors(call, target="sm_80")[0]
    assert other.code == "unknown-instruction"
    assert "is an instruction of AMD's waves" in other.message


@pytest.mark.parametrize(
    ("says", "bad", "good"),
    [
        ("a wait names a counter", "al.s_waitcnt()", "al.s_waitcnt(0)"),
        ("vmcnt of s_waitcnt is 0 to 63", "al.s_waitcnt(64)", "al.s_waitcnt(63)"),
        ("lgkmcnt of s_waitcnt is 0 to 15", "al.s_waitcnt(lgkmcnt=16)", "al.s_waitcnt(lgkmcnt=15)"),
        ("at least 0", "al.s_waitcnt(-1)", "al.s_waitcnt(1)"),
        ("priority of s_setprio is 0 to 3", "al.s_setprio(4)", "al.s_setprio(3)"),
        ("size of sched_group_barrier is 1 to", "al.sched_group_barrier(8, 0)", "al.sched_group_barrier(8, 1)"),
        ("is 0 to 2047", "al.sched_barrier(2048)", "al.sched_barrier(1024)"),
        ("is 1 to 2047", "al.sched_group_barrier(2048, 1)", "al.sched_group_barrier(1024, 1)"),
    ],
)
def test_rejected_beside_an_accepted_twin(says, bad, good):
    (found,) = errors(bad, target="gfx942")
    assert found.code == "wrong-arguments"
    assert says in found.message
    elaborate(good, target="gfx942")


@pytest.mark.parametrize(
    ("code", "says", "bad"),
    [
        ("bad-turns", "these turns do not end", "al.begin_turns()"),
        ("bad-turns", "no turns have begun", "al.end_turns()"),
        ("bad-turns", "in one part", "al.begin_turns()\nal.begin_turns()\nal.end_turns()"),
        ("bad-turns", "in one part", "al.begin_turns()\nal.end_turns()\nal.end_turns()"),
        ("conditional-declaration", "holds for the whole kernel", "for i in range(3):\n    al.begin_turns()"),
    ],
)
def test_turns_begin_and_end_once(code, says, bad):
    found = errors(bad, target="gfx942")[0]
    assert found.code == code
    assert says in found.message


def test_a_load_to_lds_is_named():
    body = 's = al.shared((256,), al.float32)\nal.copy(s, x[0:256], instruction="global_load_lds")'
    assert statements(body, target="gfx942") == ["copy s[c0] <- x[c0] shape 256 via global_load_lds"]
    (other,) = errors(body, target="sm_80")
    assert other.code == "unknown-instruction"


def test_groups_of_copies_are_nothing_where_no_copy_is_in_one():
    body = "al.cp_async_commit()\nal.cp_async_wait(0)"
    assert statements(body, target="gfx942") == []
    assert statements(body, target="sm_80") == ["commit_group", "wait_group 0"]
    (found,) = errors("al.cp_async_wait(-1)", target="gfx942")
    assert found.code == errors("al.cp_async_wait(-1)", target="sm_80")[0].code
