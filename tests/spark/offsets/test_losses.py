from __future__ import annotations

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.losses import GoneQueue, UnreadLoss

ONE, TWO = MessageQueue("t", "b", 1), MessageQueue("t", "b", 2)
WHY = "its topic was deleted"


def loss(*gone: GoneQueue, seen_ms: int = 7) -> UnreadLoss:
    return UnreadLoss.of(gone, seen_ms)


def test_what_was_read_to_its_end_is_no_loss() -> None:
    assert loss(GoneQueue(ONE, 5, 5, WHY), GoneQueue(TWO, 5, 3, WHY)).queues == ()
    found = loss(GoneQueue(TWO, 5, 1205, WHY), GoneQueue(ONE, 5, 5, WHY))
    assert found.count == 1200
    assert str(found) == (
        "1,200 unread messages cannot be read any more: t/b/2 offsets 5 to 1204 (its topic was deleted)"
    )


def test_an_unknown_end_is_an_unknown_number() -> None:
    found = loss(GoneQueue(ONE, 5, None, WHY), GoneQueue(TWO, 5, 8, WHY))
    assert found.count is None and found.token.endswith("-all")
    assert str(found).startswith("an unknown number of unread messages cannot be read any more: t/b/1 from")
    assert found.is_accepted({found.token})
    known = found.token.replace("-all", "-3")
    assert not found.is_accepted({known})


def test_a_token_is_of_one_loss() -> None:
    found = loss(GoneQueue(ONE, 5, 8, WHY))
    assert not found.is_accepted(())
    assert found.is_accepted({"000000000000-all", found.token})
    for other in (
        loss(GoneQueue(ONE, 5, 9, WHY)),
        loss(GoneQueue(ONE, 4, 7, WHY)),
        loss(GoneQueue(TWO, 5, 8, WHY)),
        loss(GoneQueue(ONE, 5, 8, WHY), GoneQueue(TWO, 0, 1, WHY)),
        loss(GoneQueue(ONE, 5, 8, WHY), seen_ms=8),
    ):
        assert not other.is_accepted({found.token})


def test_a_driver_that_knows_less_after_its_restart_accepts_what_it_reported() -> None:
    reported = loss(GoneQueue(ONE, 5, 9, WHY))
    assert loss(GoneQueue(ONE, 5, 8, WHY)).is_accepted({reported.token})


def test_of_many_queues_some_are_named() -> None:
    gone = [GoneQueue(MessageQueue("t", "b", number), 0, 1, WHY) for number in range(8)]
    text = str(loss(*gone))
    assert text.count("t/b/") == 5 and text.endswith("; and 3 more queues")
