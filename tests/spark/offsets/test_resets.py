from __future__ import annotations

import pytest

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.resets import SKEW_MS, OffsetReset, is_recreated, was_replaced

QUEUE = MessageQueue("t", "b", 3)
SEEN = 1_700_000_000_000


@pytest.mark.parametrize(
    ("oldest", "anew", "another"),
    [
        (None, True, False),
        (SEEN - 10 * SKEW_MS, False, False),
        (SEEN - SKEW_MS // 2, True, False),
        (SEEN + SKEW_MS // 2, True, False),
        (SEEN + 2 * SKEW_MS, True, True),
    ],
)
def test_the_age_of_the_oldest_message_tells_topics_apart(
    oldest: int | None, anew: bool, another: bool
) -> None:
    assert is_recreated(oldest, SEEN) is anew
    assert was_replaced(oldest, SEEN) is another


def test_checkpoints_without_a_time_take_a_short_queue_for_a_new_one_and_a_long_one_for_the_same() -> None:
    assert is_recreated(SEEN, 0)
    assert not was_replaced(SEEN, 0)


def test_what_happened_is_said_with_queue_offsets_and_range() -> None:
    assert OffsetReset(QUEUE, 100, 0, 7, recreated=True).offset == 0
    assert str(OffsetReset(QUEUE, 100, 0, 7, recreated=True)) == (
        "queue t/b/3 was read up to offset 100 and has offsets 0 to 6 now: its topic was deleted and "
        "recreated, and begins at offset 0"
    )
    lost = OffsetReset(QUEUE, 100, 20, 90, recreated=False)
    assert lost.offset == 90 and "has offsets 20 to 89 now: its broker lost the end" in str(lost)
    assert "has no messages now" in str(OffsetReset(QUEUE, 100, 0, 0, recreated=True))
