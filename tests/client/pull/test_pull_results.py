from __future__ import annotations

from tests.client.consumer.test_min_age import records

from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.cluster.broker_api import PullAnswer
from sparrowmq.client.pull.pull_hooks import PullHooks
from sparrowmq.client.pull.pull_results import pull_result, raw_batch
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus

QUEUE = MessageQueue("T", "broker-a", 2)


def test_records_are_returned_raw_and_as_messages() -> None:
    body = records(100, 200)
    answer = PullAnswer(PullStatus.FOUND, 2, 0, 9, 0, body)
    raw = raw_batch(answer)
    assert (raw.status, raw.next_offset, raw.min_offset, raw.max_offset) == (PullStatus.FOUND, 2, 0, 9)
    assert bytes(raw.buffer) == body
    result = pull_result(answer, QUEUE, "*", None, PullHooks("g", PullSettings()))
    assert [one.queue_offset for one in result.messages] == [0, 1]
    assert (result.next_offset, result.max_offset) == (2, 9)
    assert pull_result(answer, QUEUE, "A", None, PullHooks("g", PullSettings())).messages == []


def test_answer_without_messages_has_no_records() -> None:
    answer = PullAnswer(PullStatus.NO_NEW_MESSAGE, 2, 0, 9, 0, b"odd")
    assert bytes(raw_batch(answer).buffer) == b""
    assert pull_result(answer, QUEUE, "*", None, PullHooks("g", PullSettings())).messages == []
