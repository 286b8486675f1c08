from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import StoreError, StoreLockedError
from sparrowmq.store.base import store_lock
from sparrowmq.store.base.store_lock import StoreLock

HOLD = """
import sys
from pathlib import Path
from sparrowmq.store.base import store_lock
root = Path(sys.argv[1])
lock = store_lock.StoreLock.take(root)
if sys.argv[2] == "abort":
    store_lock.write_abort(root)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("abort", "holder"), [("abort", "process {pid}"), ("none", "another process")])
def test_second_process_gets_the_owner_of_the_lock(abort: str, holder: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), abort]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError) as caught:
            StoreLock.take(tmp_path)
        child.stdin.close()
        child.wait(20)
    assert f"the store {tmp_path} is in use by {holder.format(pid=child.pid)}; stop" in str(caught.value)
    StoreLock.take(tmp_path).release()


def test_same_process_cannot_lock_twice_and_the_first_lock_stays(tmp_path: Path) -> None:
    lock = StoreLock.take(tmp_path)
    with pytest.raises(StoreLockedError, check=about(what="this process", value=tmp_path)):
        StoreLock.take(tmp_path)
    probe = subprocess.run(
        [sys.executable, "-c", HOLD, str(tmp_path), "none"], stdin=subprocess.DEVNULL, capture_output=True
    )
    assert b"StoreLockedError" in probe.stderr
    lock.release()
    lock.release()
    StoreLock.take(tmp_path).release()


def test_lock_file_is_the_references(tmp_path: Path) -> None:
    lock = StoreLock.take(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_missing_directory_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, check=about(what="open", value=tmp_path / "none" / "lock")):
        StoreLock.take(tmp_path / "none")


def test_abort_file_contains_the_process_id(tmp_path: Path) -> None:
    assert not store_lock.abort_exists(tmp_path)
    assert store_lock.read_abort(tmp_path) is None
    store_lock.write_abort(tmp_path)
    assert store_lock.abort_exists(tmp_path)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert store_lock.read_abort(tmp_path) == os.getpid()
    store_lock.remove_abort(tmp_path)
    store_lock.remove_abort(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"x\n", b"\xff", b"1" * 5000])
def test_abort_file_of_other_brokers_may_contain_anything(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "abort").write_bytes(content)
    assert store_lock.abort_exists(tmp_path)
    assert store_lock.read_abort(tmp_path) is None
