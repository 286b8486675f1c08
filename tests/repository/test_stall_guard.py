"""The guard itself: what it takes for a server's stall, and that it hears of servers in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.stall_guard import StallsFile, bound_of, is_servers, judge

from sparrowmq.core.stalls import Stall
from sparrowmq.transport.stall_watch import STALLS_FILE

SERVERS = ("sparrowmq/broker/x.py:1 work", "sparrowmq/broker/x.py:2 run")
TESTS = ("sparrowmq/broker/x.py:1 work", "tests/broker/test_x.py:2 main")
CHILD = """
import asyncio, time
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.server import Server

def block(conn, request):
    time.sleep(0.8)
    return Command(0)

async def main():
    server = Server(CommandHandler({34: block}), host="127.0.0.1", port=0)
    await server.start()
    server.begin_watch()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(encode(Command(34)))
    await reader.read(1)
    writer.close()
    await server.close()

asyncio.run(main())
"""


def stall(**fields: Any) -> Stall:
    return Stall(at_ms=1, what="HEART_BEAT", **fields)


def report(outcome: Any = "passed") -> pytest.TestReport:
    return pytest.TestReport("a.py::b", ("a.py", 1, "b"), {}, outcome, None, "call")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (stall(client="127.0.0.1:1"), True),
        (stall(client="127.0.0.1:1", where=TESTS), True),  # a server's double is called by the server
        (stall(where=SERVERS), True),
        (stall(where=TESTS), False),  # the test's own coroutine
        (stall(), False),  # nobody knows
    ],
)
def test_whose_stall_it_is(found: Stall, wanted: bool) -> None:
    assert is_servers(found) is wanted


def test_a_test_fails_by_a_stall_and_is_told_which() -> None:
    long = stall(wall_ms=900.0, cpu_ms=850.0, where=SERVERS)
    fine, failed, skipped, allowed = report(), report(), report("skipped"), report()
    judge(
        fine, [stall(wall_ms=400.0, where=SERVERS), stall(wall_ms=900.0, waited_ms=500, where=SERVERS)], 0.5
    )
    judge(failed, [long], 0.5)
    judge(skipped, [long], 0.5)
    judge(allowed, [long], 1)
    assert [fine.outcome, failed.outcome, skipped.outcome, allowed.outcome] == [
        "passed",
        "failed",
        "skipped",
        "passed",
    ]
    assert "HEART_BEAT" in str(failed.longrepr) and SERVERS[0] in str(failed.longrepr)


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = StallsFile(tmp_path / "stalls")
    assert file.added() == []
    file.path.write_text('{"what"')
    assert file.added() == []
    file.path.write_text(
        '{"what": "x", "at_ms": 1, "client": "", "wall_ms": 1, "cpu_ms": 1, "waited_ms": 1, '
        '"others_ms": 1, "paused_ms": 1, "where": []}\n{'
    )
    assert [one.what for one in file.added()] == ["x"]
    assert file.added() == []


@pytest.mark.stalls(seconds=10, why="a child process stalls to see whether it is heard of")
def test_a_child_is_heard_of(request: pytest.FixtureRequest) -> None:
    assert bound_of(request.node) == 10
    with open(os.environ[STALLS_FILE], "ab") as before:
        start = before.tell()
    subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True)
    with open(os.environ[STALLS_FILE], "rb") as file:
        file.seek(start)
        assert b'"HEART_BEAT"' in file.read()
