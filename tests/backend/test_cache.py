"""The disk cache: what is trusted, what is rebuilt, and what concurrent processes see."""

import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.backend.cache import CacheWarning, DiskCache, Entry, cache_key
from argus.backend.fingerprint import compiler, constant, file_identity, tree_digest, value_of, versions
from argus.ir.types import bfloat16, float16

KEY = cache_key({"text": "kernel"})
ENTRY = Entry({"verdict": "proved", "grid": [1, 2]}, {"binary": bytes(range(256)), "source": b"int main();"})


def file_of(cache: DiskCache, key: str = KEY) -> Path:
    assert cache.directory is not None
    return cache.directory / (key + ".entry")


def test_an_entry_comes_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "new" / "deep")
    assert cache.get(KEY) is None
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY
    assert DiskCache(tmp_path / "new" / "deep").get(KEY) == ENTRY
    assert [p.name for p in (tmp_path / "new" / "deep").iterdir()] == [KEY + ".entry"]


def test_without_a_directory_nothing_is_kept() -> None:
    cache = DiskCache(None)
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) is None


def test_every_flipped_byte_is_a_miss_and_is_rebuilt(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, ENTRY)
    path = file_of(cache)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x40]) + good[position + 1 :])
        assert cache.get(KEY) is None, position
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY


def test_every_truncation_and_extension_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, ENTRY)
    path = file_of(cache)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert cache.get(KEY) is None, length
    path.write_bytes(good + b"\0")
    assert cache.get(KEY) is None


def test_another_keys_entry_is_foreign(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    other = cache_key({"text": "other"})
    cache.put(other, ENTRY)
    os.rename(file_of(cache, other), file_of(cache))
    assert cache.get(KEY) is None


@pytest.mark.parametrize(
    "payload", [b"", b"\0\0\0\0", b"\x02\0\0\0[]", b"\x02\0\0\0{}", b"\xff\xff\0\0{}", b"\1\0\0\0{"]
)
def test_a_right_digest_over_nonsense_is_a_miss(tmp_path: Path, payload: bytes) -> None:
    cache = DiskCache(tmp_path)
    file_of(cache).write_bytes(b"ARGUSC01" + hashlib.sha256(payload).digest() + payload)
    assert cache.get(KEY) is None


def test_a_directory_that_cannot_be_written_warns_once_and_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = DiskCache(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="ARGUS_CACHE_DIR") as caught:
        cache.put(KEY, ENTRY)
        cache.put(KEY, ENTRY)
    assert len(caught) == 1
    assert cache.get(KEY) is None


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory_still_serves(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, ENTRY)
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(CacheWarning):
            cache.put(cache_key(1), ENTRY)
        assert cache.get(KEY) == ENTRY
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_another_users_entry_is_not_trusted(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, ENTRY)
    os.chown(file_of(cache), 12345, 12345)
    assert cache.get(KEY) is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    size = 10_000
    cache = DiskCache(tmp_path, limit=4 * size)
    keys = [cache_key(i) for i in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, Entry(None, {"binary": bytes(size)}))
        os.utime(file_of(cache, key), (1000.0 + age, 1000.0 + age))
    assert cache.get(keys[0]) is not None  # used: now the newest
    cache.put(keys[3], Entry(None, {"binary": bytes(size)}))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]


def test_an_entry_larger_than_the_limit_is_kept_alone(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=100)
    cache.put(cache_key(0), ENTRY)
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY
    assert cache.get(cache_key(0)) is None


def test_abandoned_temporary_files_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    old, fresh = tmp_path / ".partial-old", tmp_path / ".partial-new"
    old.touch()
    fresh.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    DiskCache(tmp_path).put(KEY, ENTRY)
    assert not old.exists()
    assert fresh.exists()


_WORKER = """
import sys
from importlib import metadata
from pathlib import Path
from argus.backend.cache import DiskCache, Entry
cache, key = DiskCache(Path(sys.argv[1]), limit=200_000), sys.argv[2]
seen = 0
for i in range(150):
    fill = bytes([int(sys.argv[3])]) * (1000 + i)
    cache.put(key, Entry({"fill": fill[0], "length": len(fill)}, {"binary": fill}))
    entry = cache.get(key)
    if entry is not None:
        seen += 1
        binary = entry.blobs["binary"]
        assert binary == bytes([entry.data["fill"]]) * entry.data["length"], "torn entry"
print(seen)
"""


def test_processes_that_race_for_one_key_never_see_a_torn_entry(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER, str(tmp_path), KEY, str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert [int(output) for output in outputs] == [150, 150, 150]
    assert [p.name for p in tmp_path.iterdir()] == [KEY + ".entry"]


CONSTANTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([float16, bfloat16]),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
)


def same(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and repr(a) == repr(b)


@given(CONSTANTS, CONSTANTS)
def test_constants_share_a_key_only_if_they_are_the_same(a: object, b: object) -> None:
    assert (cache_key(constant(a)) == cache_key(constant(b))) == same(a, b)


@pytest.mark.parametrize(("a", "b"), [(1, True), (1, 1.0), (0.0, -0.0), (1, "1"), ((1,), 1), (float16, "float16")])
def test_values_that_python_confuses_have_their_own_keys(a: object, b: object) -> None:
    assert cache_key(constant(a)) != cache_key(constant(b))


@given(CONSTANTS)
def test_a_constant_is_read_back(value: object) -> None:
    assert same(value_of(json.loads(json.dumps(constant(value)))), value)


def test_a_list_is_no_constant() -> None:
    with pytest.raises(TypeError, match="not list"):
        constant([1])


def test_the_key_ignores_the_order_of_a_dictionary_only() -> None:
    assert cache_key({"a": 1, "b": 2}) == cache_key({"b": 2, "a": 1})
    assert cache_key([1, 2]) != cache_key([2, 1])


def test_the_tree_digest_sees_names_contents_and_headers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "device.h").write_text("int f();")
    seen = {tree_digest(tmp_path)}
    (tmp_path / "device.h").write_text("int g();")
    seen.add(tree_digest(tmp_path))
    (tmp_path / "device.h").rename(tmp_path / "other.h")
    seen.add(tree_digest(tmp_path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "grammar.lark").write_text("")
    seen.add(tree_digest(tmp_path))
    assert len(seen) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert tree_digest(tmp_path) in seen


def test_a_tool_is_known_by_its_file(tmp_path: Path) -> None:
    tool = tmp_path / "cc"
    tool.write_text("1")
    link = tmp_path / "link"
    link.symlink_to(tool)
    before = file_identity(str(link))
    assert before == file_identity(str(tool))
    tool.write_text("12")
    assert file_identity(str(link)) != before


def test_the_compilers_fingerprint_names_what_proves() -> None:
    found = compiler()
    assert len(found["argus"]) == 64
    assert found["z3_solver"] == metadata.version("z3-solver")


def test_versions_are_those_that_python_would_import(tmp_path: Path) -> None:
    for place, name in (("a", "islpy-2.0"), ("b", "islpy-1.0"), ("b", "lark-1.3.1"), ("b", "other-1")):
        (tmp_path / place / f"{name}.dist-info").mkdir(parents=True)
    found = versions(["islpy", "lark", "missing"], [str(tmp_path / "none"), str(tmp_path / "a"), str(tmp_path / "b")])
    assert found == {"islpy": "2.0", "lark": "1.3.1", "missing": ""}


def test_reading_and_writing_give_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DiskCache(tmp_path).put(KEY, ENTRY)


def test_a_pipe_is_a_miss_and_is_not_waited_for(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    os.mkfifo(file_of(cache))
    assert cache.get(KEY) is None
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY


def test_an_entry_of_implausible_size_is_not_read(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with open(file_of(cache), "wb") as file:
        file.truncate(20 * 10**9)  # a sparse file: it takes no room
    assert cache.get(KEY) is None
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY
