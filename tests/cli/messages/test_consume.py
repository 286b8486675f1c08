"""`sparrow send` and `sparrow consume` against a running cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import free_port, until_sync

import sparrowmq as mq
from sparrowmq.cli.base.common import run
from sparrowmq.cli.messages import consume

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def read(sparrow: Sparrow, topic: str, count: int, *options: str) -> list[Any]:
    options = (*options, "--from", "first", "--format", "json", "--count", str(count))
    return sparrow("consume", topic, *options).values


def test_send_one(sparrow: Sparrow) -> None:
    (sent,) = sparrow(
        "send", "One", "héllo", "--tags", "A", "--keys", "k1 k2", "--property", "x=y=z", "--json"
    ).values
    assert (sent["status"], sent["topic"], sent["broker"], sent["offset"]) == (
        "SEND_OK",
        "One",
        "broker-a",
        0,
    )
    (got,) = read(sparrow, "One", 1)
    assert got["message_id"] == sent["message_id"]
    assert (got["body"], got["tags"], got["keys"], got["queue"]) == (
        "héllo",
        "A",
        ["k1", "k2"],
        sent["queue"],
    )
    assert got["properties"]["x"] == "y=z"
    assert got["reconsume_times"] == 0


def test_send_says_where_it_is(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Where", "--queues", "1")
    assert sparrow("send", "Where", "x").out.startswith("SEND_OK  Where/broker-a/0  offset 0  id ")


def test_send_a_file_of_lines(sparrow: Sparrow, tmp_path: Path) -> None:
    bodies = [f"line {i}" for i in range(200)]
    source = tmp_path / "lines"
    source.write_bytes("\n".join([*bodies[:100], "", *bodies[100:]]).encode() + b"\r\n")
    assert sparrow("send", "Lines", "--file", str(source), "--tags", "T").out == "200 sent to Lines\n"
    got = read(sparrow, "Lines", 200)
    assert sorted(item["body"] for item in got) == sorted(bodies)
    assert {item["tags"] for item in got} == {"T"}


def test_a_line_that_cannot_be_sent_ends_it(sparrow: Sparrow, tmp_path: Path) -> None:
    sparrow("topic", "create", "Broken", "--queues", "2")
    source = tmp_path / "lines"
    source.write_bytes(b"\n".join([b"a"] * 100 + [bytes(4 * 1024 * 1024 + 1)] + [b"b"] * 200))
    told = sparrow("send", "Broken", "--file", str(source), status=1).err
    assert "the limit is 4194304" in told
    assert len(told.splitlines()) == 1
    stored = sum(queue["messages"] for queue in sparrow("topic", "status", "Broken", "--json").values)
    assert 100 <= stored < 300
    assert told.endswith(f"; {stored} messages are known to be stored\n")


def test_a_file_without_any_server_is_one_line_of_error(sparrow: Sparrow, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("a\nb\nc\n")
    nobody = f"127.0.0.1:{free_port()}"
    told = sparrow("send", "Nowhere", "--file", str(source), "--namesrv", nobody, status=1).err
    assert told.startswith(f"sparrow: the name server did not answer: no connection to {nobody}")
    assert told.endswith("; 0 messages are known to be stored\n")
    assert len(told.splitlines()) == 1


def test_send_from_standard_input(sparrow: Sparrow) -> None:
    outcome = sparrow("send", "Stdin", "--file", "-", "--json", stdin="a\nb\n")
    assert outcome.values == [{"topic": "Stdin", "sent": 2}]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("T",), "give a BODY, or a file of bodies with --file"),
        (("T", "x", "--file", "y"), "give either a BODY or --file, not both"),
        (("T", "--file", "/no/such/file"), "/no/such/file cannot be read: No such file"),
        (("T", "x", "--property", "a"), "--property a: write it as name=value"),
        (("T", ""), "body"),
        (("bad name", "x"), "may only have letters"),
        (("T", "x", "--property", "TAGS=a"), "TAGS"),
    ],
)
def test_sends_that_cannot_be(sparrow: Sparrow, arguments: tuple[str, ...], text: str) -> None:
    outcome = sparrow("send", *arguments, status=1)
    assert text in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_consume_as_text(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Text", "--queues", "1")
    sparrow("send", "Text", "first", "--tags", "A")
    sparrow("send", "Text", "second")
    lines = sparrow("consume", "Text", "--from", "first", "--count", "2").lines
    assert [line.split()[1:] for line in lines] == [
        ["Text/broker-a/0", "0", "A", "first"],
        ["Text/broker-a/0", "1", "-", "second"],
    ]


def test_consume_with_tags(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Tagged", "--queues", "1")
    for tag in ("A", "B", "C"):
        sparrow("send", "Tagged", tag, "--tags", tag)
    assert [item["body"] for item in read(sparrow, "Tagged", 2, "--tags", "A || C")] == ["A", "C"]
    got = read(sparrow, "Tagged", 2, "--tags", "A || C", "--group", "tagged")
    assert sorted(item["body"] for item in got) == ["A", "C"]


def test_consume_ends_when_nothing_comes(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Quiet", "--queues", "1")
    sparrow("send", "Quiet", "old")
    assert sparrow("consume", "Quiet", "--timeout", "0.2").out == ""
    assert len(sparrow("consume", "Quiet", "--from", "first", "--timeout", "1").lines) == 1


def test_consume_from_a_time(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Timed", "--queues", "1")
    sparrow("send", "Timed", "x")
    now = datetime.now()
    before, after = (now - timedelta(hours=1)).isoformat(), (now + timedelta(hours=1)).isoformat()
    assert len(sparrow("consume", "Timed", "--from", before, "--count", "1").lines) == 1
    assert sparrow("consume", "Timed", "--from", after, "--timeout", "0.2").out == ""


def test_a_group_goes_on_where_it_was(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Grouped", "--queues", "1")
    for body in ("1", "2", "3"):
        sparrow("send", "Grouped", body)
    first = read(sparrow, "Grouped", 2, "--group", "going-on")
    second = read(sparrow, "Grouped", 1, "--group", "going-on")
    assert [item["body"] for item in (*first, *second)] == ["1", "2", "3"]


def test_looking_commits_nothing(sparrow: Sparrow) -> None:
    sparrow("send", "Looked", "x")
    groups = sparrow("group", "list").lines
    assert len(read(sparrow, "Looked", 1)) == len(read(sparrow, "Looked", 1)) == 1
    assert sparrow("group", "list").lines == groups


def test_a_group_reads_in_order(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "InOrder", "--queues", "2")
    bodies = [str(number) for number in range(8)]
    for body in bodies:
        sparrow("send", "InOrder", body, "--hash-key", str(int(body) % 2))
    got = read(sparrow, "InOrder", 8, "--group", "in-order", "--ordered")
    for key in (0, 1):
        assert [item["body"] for item in got if int(item["body"]) % 2 == key] == bodies[key::2]
    assert sparrow("consume", "InOrder", "--group", "in-order", "--ordered", "--timeout", "0.5").out == ""


def test_every_broadcasting_member_gets_everything(
    sparrow: Sparrow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparrow("topic", "create", "Casted", "--queues", "1")
    sparrow("send", "Casted", "a")
    sparrow("send", "Casted", "b")
    for member in ("one", "two"):  # each keeps its offsets in its own home
        monkeypatch.setenv("HOME", str(tmp_path / member))
        monkeypatch.setenv("USERPROFILE", str(tmp_path / member))
        got = read(sparrow, "Casted", 2, "--group", "casting", "--broadcasting")
        assert [item["body"] for item in got] == ["a", "b"]
        again = sparrow("consume", "Casted", "--group", "casting", "--broadcasting", "--timeout", "0.5")
        assert again.out == ""


def test_sigterm_ends_a_member_gracefully(sparrow: Sparrow, cluster: Any) -> None:
    sparrow("topic", "create", "Ended", "--queues", "1")
    with mq.Admin(namesrv=cluster.namesrv) as admin:

        def end_it() -> None:
            until_sync(lambda: admin.groups.connections("ended"))
            os.kill(os.getpid(), signal.SIGTERM)

        ending = threading.Thread(target=end_it)
        ending.start()
        assert sparrow("consume", "Ended", "--group", "ended").out == ""
        ending.join()
        assert admin.groups.connections("ended") is None, "it left, and was not only cut off"


def test_sigterm_lets_what_is_read_close() -> None:
    closed = False

    async def reading() -> AsyncGenerator[Any, None]:
        nonlocal closed
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(3600)
            yield
        finally:
            await asyncio.sleep(0)
            closed = True

    run(consume._consume(reading(), None, None, consume.Format.TEXT))
    assert closed


def test_consumes_that_cannot_be(sparrow: Sparrow) -> None:
    assert "no broker serves topic" in sparrow("consume", "NoSuchTopic", status=1).err
    assert "give last, first, or a time" in sparrow("consume", "T", "--from", "soon", status=1).err
    sparrow("consume", "T", "--count", "0", status=2)
    for option in ("--ordered", "--broadcasting"):
        assert "give --group as well" in sparrow("consume", "T", option, status=1).err
    both = ("--group", "g", "--ordered", "--broadcasting")
    assert "broadcasting" in sparrow("consume", "T", *both, status=1).err


@pytest.mark.proves("broker:14.2")
def test_consume_with_a_filter(sparrow: Sparrow) -> None:
    for number in range(4):
        sparrow("send", "Filtered", str(number), "--property", f"a={number}")
    first_two = ("--from", "first", "--sql", "a >= 2", "--count", "2")
    for options in ((), ("--group", "filter_g")):
        got = sparrow("consume", "Filtered", *first_two, *options).lines
        assert sorted(line.split()[-1] for line in got) == ["2", "3"]
    assert "column 4" in sparrow("consume", "Filtered", "--sql", "a >", status=1).err
    both = ("--sql", "a > 1", "--tags", "A")
    assert "give one of them" in sparrow("consume", "Filtered", *both, status=1).err


def test_a_binary_body_arrives_unchanged(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "Bytes", "--queues", "1")
    sparrow("send", "Bytes", "a\udcffb")  # what Python makes of a byte that is no UTF-8
    (row,) = sparrow("consume", "Bytes", "--from", "first", "--count", "1", "--format", "json").values
    assert row["body"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Unheard", "--timeout", "0"), "no broker serves topic 'Unheard'"),
        (("Unheard", "--from", "0001-01-01"), "--from 0001-01-01: give last, first, or a time"),
    ],
)
def test_what_is_wrong_is_told_before_the_time_is_over(
    sparrow: Sparrow, arguments: tuple[str, ...], text: str
) -> None:
    assert text in sparrow("consume", *arguments, status=1).err
