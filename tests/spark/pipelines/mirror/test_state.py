"""A mirror's state as text."""

from __future__ import annotations

import pytest

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror.offset_map import QueuePlaces
from sparrowmq.spark.pipelines.mirror.state import MirrorError, MirrorState

HERE = [MessageQueue("T", "a", number) for number in range(3)]
THERE = [MessageQueue("T", "x", number) for number in range(2)]
STATE = MirrorState(
    source="paris",
    target="tokyo",
    queues={HERE[0]: THERE[0], HERE[1]: THERE[1], HERE[2]: THERE[0]},
    done={HERE[0]: 5, HERE[1]: 7},
    places={THERE[0]: QueuePlaces(3).grown(8, HERE[0], 0).grown(12), THERE[1]: QueuePlaces(0)},
    query="q",
    batch=4,
)


def test_it_comes_back() -> None:
    assert MirrorState.from_text(STATE.to_text(), "x") == STATE
    assert STATE.sources(THERE[0]) == [HERE[0], HERE[2]]


def test_batches_that_are_done() -> None:
    assert STATE.has("q", 4) and STATE.has("q", 3)
    assert not STATE.has("q", 5) and not STATE.has("r", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here cannot be read as a mirror's state"),
        ("[]", "here cannot be read"),
        ('{"version":1}', "here cannot be read"),
        (STATE.to_text().replace('"done"', '"dome"'), "here cannot be read"),
        (
            STATE.to_text().replace('"version":1', '"version":2'),
            "here has version 2, but this release reads version 1",
        ),
    ],
)
def test_what_is_no_state(text: str, message: str) -> None:
    with pytest.raises(MirrorError, match=message):
        MirrorState.from_text(text, "here")
