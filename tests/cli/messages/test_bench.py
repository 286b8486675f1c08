"""`sparrow bench`: what is sent is counted when it is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from tests.support import run

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.messages import bench
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullResult, PullStatus

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.core.message import ReceivedMessage


@pytest.mark.parametrize("options", [(), ("--linger", "0.005", "--in-flight", "200")])
def test_all_messages_are_read_back(sparrow: Sparrow, options: tuple[str, ...]) -> None:
    sparrow("topic", "create", "Benched", "--queues", "3")
    sparrow("send", "Benched", "somebody else's")
    (found,) = sparrow("bench", "Benched", "--messages", "500", "--size", "100", *options, "--json").values
    assert (found["messages"], found["size"], found["missing"], found["doubled"]) == (500, 100, 0, 0)
    assert found["send"]["messages_per_s"] > 0 < found["read"]["mib_per_s"]
    assert 0 < found["send"]["p50_ms"] <= found["send"]["p99_ms"] <= found["send"]["max_ms"]
    shown = sparrow("bench", "Benched", "--messages", "10", "--size", "16")
    assert shown.lines[-1] == "10 messages of 16 bytes in Benched: 0 missing, 0 twice"


def test_messages_that_are_not_there_are_status_1(sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch) -> None:
    sparrow("topic", "create", "BenchLost", "--queues", "1")
    count = bench._count

    def without_the_last(messages: Sequence[ReceivedMessage], run_id: bytes, counts: bytearray) -> None:
        count(messages[:-1], run_id, counts)

    monkeypatch.setattr(bench, "_count", without_the_last)
    found = sparrow("bench", "BenchLost", "--messages", "20", status=1)
    assert "20 messages of 1024 bytes in BenchLost: 1 missing, 0 twice" in found.out
    assert "1 of 20 acknowledged messages were not read back from BenchLost" in found.err


def test_the_first_failed_send_ends_it(sparrow: Sparrow) -> None:
    sparrow("topic", "create", "BenchClosed", "--queues", "1")
    sparrow("topic", "perm", "BenchClosed", "4")
    found = sparrow("bench", "BenchClosed", "--messages", "10", status=1)
    assert found.err.startswith("sparrow: ") and "BenchClosed" in found.err


def test_a_message_that_came_twice_is_counted_as_such() -> None:
    counts = bytearray(3)
    body = b"run-0001" + (1).to_bytes(8)
    for one in (body, body, body, b"run-0002" + (0).to_bytes(8)):
        bench._count([type("Message", (), {"body": one})()], b"run-0001", counts)  # type: ignore[list-item]
    assert list(counts) == [0, 2, 0]


def test_a_broker_that_sends_nothing_more_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        async def pull(self, queue: MessageQueue, offset: int, **_: object) -> PullResult:
            return PullResult(PullStatus.NO_NEW_MESSAGE, [], offset, 0, offset)

    with pytest.raises(UsageError) as raised:
        run(bench._read(Stuck(), MessageQueue("T", "b", 0), 3, 9, b"", bytearray()))  # type: ignore[arg-type]
    assert (raised.value.what, raised.value.value, raised.value.limit) == ("offset", 3, 9)
