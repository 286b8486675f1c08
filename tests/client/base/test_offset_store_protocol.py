from __future__ import annotations

import pytest

from sparrowmq.client.base.offset_store_protocol import MemoryOffsets
from sparrowmq.core.message import MessageQueue

Q, OTHER = (MessageQueue("T", "broker-a", number) for number in (0, 1))


@pytest.mark.proves("client:D-75", "MUST-45")
def test_offset_is_created_and_only_raised_by_finished_messages() -> None:
    offsets = MemoryOffsets()
    assert offsets.get(Q) is None
    offsets.advance(Q, 0)
    assert offsets.get(Q) == 0, "a missing one is made, were it 0"
    offsets.advance(Q, 5)
    offsets.advance(Q, 3)
    assert offsets.get(Q) == 5
    offsets.set(Q, 2)
    assert offsets.get(Q) == 2, "who sets it may lower it"
    assert offsets.get(OTHER) is None


@pytest.mark.proves("client:D-27")
def test_frozen_offset_stays_until_it_is_forgotten() -> None:
    offsets = MemoryOffsets()
    offsets.freeze(Q, 50)
    offsets.advance(Q, 99)
    offsets.set(Q, 7)
    assert offsets.get(Q) == 50
    offsets.advance(OTHER, 1)
    assert offsets.get(OTHER) == 1
    offsets.forget(Q)
    assert offsets.get(Q) is None
    offsets.advance(Q, 51)
    assert offsets.get(Q) == 51


def test_many_offsets_are_known_and_forgotten() -> None:
    offsets = MemoryOffsets()
    offsets.set(Q, 1)
    offsets.set(OTHER, 2)
    offsets.freeze(OTHER, 3)
    third = MessageQueue("T", "broker-a", 2)
    assert offsets._known([third, Q, OTHER]) == [(Q, 1), (OTHER, 3)]
    offsets._forget_others([Q, third])
    assert (offsets.get(Q), offsets.get(OTHER)) == (1, None)
    offsets.set(OTHER, 4)
    assert offsets.get(OTHER) == 4, "the freeze went with it"
