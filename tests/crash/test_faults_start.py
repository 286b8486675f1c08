"""Servers that cannot start: one line names what is in the way and the next step, and nobody is harmed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.faults import PROGRAM, Place, create, drop_privilege, send, sparrow, stored
from tests.support import free_port, run

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError

pytestmark = pytest.mark.crash


@contextmanager
def up(*arguments: str, without_privilege: bool = False) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`sparrow …` that runs until the block ends, and the lines it printed until it was ready."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=drop_privilege if without_privilege else None,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        assert lines and lines[-1].startswith("Ctrl-C"), process.communicate(timeout=60)
        yield process, lines
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def ports(nameserver: int = 0, broker: int = 0) -> list[str]:
    alone = ("--no-coordinator", "--no-proxy")
    return ["--nameserver-port", str(nameserver), "--broker-port", str(broker), *alone]


def address(lines: list[str], what: str) -> str:
    line = next(line for line in lines if line.startswith(what))
    return line.removeprefix(what).split()[0]


async def send_some(namesrv: str, count: int = 3) -> list[object]:
    async with aio.Producer("p", namesrv=namesrv) as producer:
        return list(await send(producer, [b"%d" % number for number in range(count)]))


@pytest.mark.parametrize("what", ["nameserver", "broker"])
def test_a_port_in_use_is_one_line_and_the_directory_stays_free(tmp_path: Path, what: str) -> None:
    taken = free_port()
    with up("up", *ports(**{what: taken}), "--data", str(tmp_path / "first")) as (_, lines):
        namesrv = address(lines, "name server")
        run(create(namesrv))
        second = str(tmp_path / "second")
        done = sparrow("up", *ports(**{what: taken}), "--data", second)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"sparrow: 127.0.0.1:{taken} is in use by another process; stop it or choose")
        assert f"sport = :{taken}" in line
        assert not (tmp_path / "second" / "store" / "abort").exists()
        with up("up", *ports(), "--data", second) as (_, others):
            run(create(address(others, "name server")))
        assert len(run(send_some(namesrv))) == 3


def test_a_port_that_there_is_not_is_refused_with_the_option_and_the_range(tmp_path: Path) -> None:
    done = sparrow("up", *ports(broker=70_000), "--data", str(tmp_path))
    assert done.returncode == 2
    assert "--broker-port" in done.stderr and "65535" in done.stderr
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_an_address_of_another_machine_is_one_line(tmp_path: Path) -> None:
    done = sparrow("broker", "--port", "0", "--bind", "192.0.2.1", "--data", str(tmp_path))
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert "192.0.2.1:0 is not an address of this machine" in line and "or 127.0.0.1" in line


def test_a_second_broker_on_the_same_directory_is_one_line_that_names_the_first(tmp_path: Path) -> None:
    data = str(tmp_path)
    with up("up", *ports(), "--data", data) as (first, lines):
        namesrv = address(lines, "name server")
        run(create(namesrv))
        before = run(send_some(namesrv))
        for command in (("up", *ports()), ("broker", "--port", "0", "--namesrv", namesrv)):
            done = sparrow(*command, "--data", data)
            assert (done.returncode, done.stdout) == (1, "")
            (line,) = done.stderr.splitlines()
            assert line == (
                f"sparrow: the store {tmp_path / 'store'} is in use by process {first.pid}; "
                "stop that broker or use another directory"
            )
        after = run(send_some(namesrv))
        assert run(stored(namesrv)) == before + after
    with up("up", *ports(), "--data", data) as (_, lines):
        assert run(stored(address(lines, "name server"))) == before + after


def test_the_directory_of_a_killed_broker_can_be_had_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    servers = place.servers()
    servers.start()
    run(create(servers.nameserver_address))
    entries = run(send_some(servers.nameserver_address))
    with pytest.raises(SparrowError, match=f"in use by process {servers.pid}"):
        place.servers().start()
    servers.kill()
    with place.servers() as again:
        assert run(stored(again.nameserver_address)) == entries


@pytest.fixture
def writable_again(tmp_path: Path) -> Iterator[Path]:
    """A directory whose permissions are put right at the end, so that it can be removed."""
    yield tmp_path
    for directory, names, _ in os.walk(tmp_path):
        for name in names:
            os.chmod(Path(directory) / name, 0o755)


def test_a_directory_that_may_not_be_written_to_is_one_line(writable_again: Path) -> None:
    data = writable_again / "data"
    data.mkdir()
    data.chmod(0o500)
    done = sparrow("up", *ports(), "--data", str(data), without_privilege=True)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line == (
        f"sparrow: cannot make the store {data / 'store'}: Permission denied; "
        "the store needs a directory it may write to"
    )


@pytest.mark.parametrize("part", ["", "commitlog", "config"])
def test_a_store_that_became_read_only_is_named_and_left_as_it_was(writable_again: Path, part: str) -> None:
    data = writable_again / "data"
    with up("up", *ports(), "--data", str(data)) as (_, lines):
        run(create(address(lines, "name server")))
        entries = run(send_some(address(lines, "name server")))
    store = data / "store"
    place = store / part
    for path in place.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    place.chmod(0o555)
    if part == "config":  # everything can be read and stored; only changes of topics are refused
        with up("up", *ports(), "--data", str(data), without_privilege=True) as (process, lines):
            namesrv = address(lines, "name server")
            assert run(stored(namesrv)) == entries
            with pytest.raises(SparrowError, match=r"topics\.json: Permission denied; the store needs"):
                run(create(namesrv, "Another"))
            entries += run(send_some(namesrv))
            assert process.poll() is None
    else:
        done = sparrow("up", *ports(), "--data", str(data), without_privilege=True)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert str(place) in line and "Permission denied; the store needs a directory it may write to" in line
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with up("up", *ports(), "--data", str(data)) as (_, lines):
        assert run(stored(address(lines, "name server"))) == entries


def test_a_file_where_the_directory_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    done = sparrow("up", *ports(), "--data", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "data") in line and "directory" in line


def test_more_strangers_than_open_files_leave_the_store_its_own(tmp_path: Path) -> None:
    """200 open files: connections are refused before the log or a topic's files cannot be opened."""
    script = f"ulimit -n 200; exec {' '.join(PROGRAM)} up {' '.join(ports())} --data {tmp_path}"
    process = subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        namesrv, broker = address(lines, "name server"), address(lines, "broker")
        refused = run(crowd(namesrv, broker))
        assert refused > 60
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert " (40 connections, " in errors
    assert "ulimit -n" in errors
    assert "Too many open files" not in errors


async def crowd(namesrv: str, broker: str) -> int:
    """Connect far more often than there is room; how many were closed again at once."""
    import asyncio

    from tests.support import until

    async with aio.Producer("p", namesrv=namesrv, retries=0) as producer:
        await producer.send(aio.Message("Before", b"x"))
        host, _, port = broker.rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(120)]
        await until(lambda: sum(reader.at_eof() for reader, _ in strangers) > 60)
        for number in range(10):  # new topics need new files
            await producer.send(aio.Message(f"New{number}", b"x"))
        refused = sum(reader.at_eof() for reader, _ in strangers)
        for _, writer in strangers:
            writer.close()

        async def room_again() -> bool:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                await asyncio.wait_for(reader.read(1), 0.05)
            except TimeoutError:
                return True
            except ConnectionError:
                return False
            finally:
                writer.close()
            return False

        await until(room_again)
        return refused
