from __future__ import annotations

from tests.client.test_aging import records

from sparrowmq.client.pull_hooks import PullHooks
from sparrowmq.client.pull_results import pull_result, raw_batch
from sparrowmq.client.requests import PullAnswer
from sparrowmq.client.settings import PullSettings
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus

QUEUE = MessageQueue("T", "broker-a", 2)


def test_records_are_given_as_they_are_and_as_messages() -> None:
    body = records(100, 200)
    answer = PullAnswer(PullStatus.FOUND, 2, 0, 9, 0, body)
    raw = raw_batch(answer)
    assert (raw.status, raw.next_offset, raw.min_offset, raw.max_offset) == (PullStatus.FOUND, 2, 0, 9)
    assert bytes(raw.buffer) == body
    result = pull_result(answer, QUEUE, "*", None, PullHooks("g", PullSettings()))
    assert [one.queue_offset for one in result.messages] == [0, 1]
    assert (result.next_offset, result.max_offset) == (2, 9)
    assert pull_result(answer, QUEUE, "A", None, PullHooks("g", PullSettings())).messages == []


def test_without_messages_what_else_an_answer_has_is_no_record() -> None:
    answer = PullAnswer(PullStatus.NO_NEW_MESSAGE, 2, 0, 9, 0, b"odd")
    assert bytes(raw_batch(answer).buffer) == b""
    assert pull_result(answer, QUEUE, "*", None, PullHooks("g", PullSettings())).messages == []
