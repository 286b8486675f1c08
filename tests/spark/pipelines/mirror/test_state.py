"""A mirror's state as text."""

from __future__ import annotations

import pytest
from tests.support import about

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
    ("text", "facts"),
    [
        ("", {"what": "state", "value": "here"}),
        ("[]", {"what": "state"}),
        ('{"version":1}', {"what": "state"}),
        (STATE.to_text().replace('"done"', '"dome"'), {"what": "state"}),
        (STATE.to_text().replace('"version":1', '"version":2'), {"what": "version", "value": 2, "limit": 1}),
    ],
)
def test_what_is_no_state(text: str, facts: dict[str, object]) -> None:
    with pytest.raises(MirrorError, check=about(**facts)):
        MirrorState.from_text(text, "here")
