"""`sparrow send` with times, keys and pace; `sparrow request` and `sparrow serve`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.messages.test_consume import read
from tests.support import about, run, until_sync

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.messages import sends
from sparrowmq.client.send.encoding import system_properties
from sparrowmq.core.message import Message

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def test_lines_with_a_hash_key_stay_in_order_in_one_queue(sparrow: Sparrow, tmp_path: Path) -> None:
    sparrow("topic", "create", "Hashed", "--queues", "4")
    source = tmp_path / "lines"
    source.write_text("\n".join(f"{n:03}" for n in range(50)))
    assert sparrow("send", "Hashed", "--file", str(source), "--key", "order-1").out.startswith("50 ")
    got = read(sparrow, "Hashed", 50)
    assert {item["queue"] for item in got} == {2}
    assert [item["body"] for item in sorted(got, key=lambda i: i["offset"])] == [f"{n:03}" for n in range(50)]


def test_a_rate_gives_each_line_its_moment(sparrow: Sparrow, tmp_path: Path) -> None:
    async def main() -> list[float]:
        moments = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        message = Message("T", b"x")

        async def five() -> AsyncIterator[Message]:
            for _ in range(5):
                yield message

        async for one in sends._paced(five(), 100.0):
            assert one is message
            moments.append(loop.time() - began)
        return moments

    moments = run(main())
    assert all(moment >= number / 100 - 0.001 for number, moment in enumerate(moments)), "none is early"
    source = tmp_path / "lines"
    source.write_text("\n".join("x" * 5))
    sparrow("send", "Paced", "--file", str(source), "--rate", "500")
    assert len(read(sparrow, "Paced", 5)) == 5


@pytest.mark.parametrize(
    ("options", "property", "value"),
    [
        (("--delay-level", "1"), "DELAY", "1"),
        (("--delay", "0.5"), "TIMER_DELAY_MS", "500"),
        (("--at", "2020-01-01T00:00:00+00:00"), "TIMER_DELIVER_MS", "1577836800000"),
    ],
)
def test_times_are_sent_along(
    sparrow: Sparrow,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    property: str,
    value: str,
) -> None:
    made: list[Message] = []
    real = sends._send_one

    async def noted(namesrv: str, message: Message, *more: Any) -> None:
        made.append(message)
        await real(namesrv, message, *more)

    monkeypatch.setattr(sends, "_send_one", noted)
    topic = f"Timed_{property}"
    sparrow("topic", "create", topic, "--queues", "1")
    (sent,) = sparrow("send", topic, "later", *options, "--json").values
    assert sent["status"] == "SEND_OK" and system_properties(made[0]) == {property: value}
    assert [got["body"] for got in read(sparrow, topic, 1)] == ["later"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--at", "soon"), "--at soon: write it like 2030-05-01T12:00"),
        (("--delay", "1", "--delay-level", "1"), "delay_level and delay of a message to"),
        (("--property", "x"), "--property x: write it as name=value"),
    ],
)
def test_times_and_properties_that_make_no_sense_are_one_line(
    sparrow: Sparrow, options: tuple[str, ...], told: str
) -> None:
    err = sparrow("send", "Odd", "x", *options, status=1).err
    assert told in err and len(err.splitlines()) == 1


def test_a_request_without_anybody_to_answer_says_so(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Alone", "--queues", "1")
    err = sparrow("request", "Alone", "ping", "--timeout", "0.3", status=1).err
    assert "no reply came within 0.3 s" in err and len(err.splitlines()) == 1


def test_lines_that_are_typed_are_sent_at_once_and_ctrl_c_tells_how_many(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Typed", "--queues", "1")
    command = [sys.executable, "-m", "sparrowmq.cli.main", "send", "Typed", "--file", "-"]
    with subprocess.Popen(
        [*command, "--namesrv", sparrow.namesrv], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as typing:
        assert typing.stdin is not None
        try:
            for number, line in enumerate(("one", "two"), 1):
                typing.stdin.write(line + "\n")
                typing.stdin.flush()
                assert read(sparrow, "Typed", number)[-1]["body"] == line, "nobody has typed the next one"
            typing.send_signal(signal.SIGINT)
            assert typing.communicate(timeout=30)[1] == "sparrow: stopped; 2 sent to Typed\n"
            assert typing.returncode == 130
        finally:
            typing.kill()


@pytest.mark.parametrize(("program", "reply"), [((), "ping"), (("tr", "a-z", "A-Z"), "PING")])
def test_a_request_is_answered(sparrow: Sparrow, program: tuple[str, ...], reply: str) -> None:
    topic = "Answered" + "".join(program[:1])
    sparrow("topic", "create", topic, "--queues", "1")
    command = [sys.executable, "-m", "sparrowmq.cli.main", "serve", topic, "--count", "1"]
    options = ["--group", f"G{topic}", "--namesrv", sparrow.namesrv, "--", *program]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert sparrow("request", topic, "ping", "--timeout", "20").out == reply + "\n"
            assert server.communicate(timeout=30)[0] == "1 answered\n"
        finally:
            server.kill()


def test_a_program_that_takes_too_long_is_ended_and_said_so(sparrow: Sparrow, tmp_path: Path) -> None:
    sparrow("topic", "create", "Slow", "--queues", "1")
    sparrow("send", "Slow", "ping")
    command = [sys.executable, "-m", "sparrowmq.cli.main", "serve", "Slow", "--namesrv", sparrow.namesrv]
    said = tmp_path / "said"
    with said.open("wb") as stderr, subprocess.Popen(
        [*command, "--program-timeout", "0.1", "--", "sleep", "20"], stdout=subprocess.PIPE, stderr=stderr
    ) as server:  # fmt: skip
        try:
            until_sync(lambda: "sleep did not finish within 0.1 s" in said.read_text())
        finally:
            server.kill()


def test_sigterm_ends_serving_gracefully(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Served", "--queues", "1")
    command = [sys.executable, "-m", "sparrowmq.cli.main", "serve", "Served"]
    with subprocess.Popen(
        [*command, "--namesrv", sparrow.namesrv], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert sparrow("request", "Served", "ping", "--timeout", "20").out == "ping\n"
            server.send_signal(signal.SIGTERM)
            assert server.communicate(timeout=30)[0] == "1 answered\n"
            assert server.returncode == 0
        finally:
            server.kill()


def test_a_program_that_fails_answers_nothing(sparrow: Sparrow) -> None:
    refusals: list[tuple[list[str], dict[str, object]]] = [
        (["false"], {"value": 1}),
        (["true"], {"what": "body", "value": b""}),
        (["no-such-program-here"], {"what": "no-such-program-here"}),
        (["sleep", "20"], {"limit": 0.1}),
    ]
    for command, facts in refusals:
        with pytest.raises(UsageError, check=about(**facts)):
            run(sends._answer(b"x", command, 0.1 if command[0] == "sleep" else 20.0))
    assert run(sends._answer(b"x", [], 1.0)) == b"x"
