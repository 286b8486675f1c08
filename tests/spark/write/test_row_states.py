"""The table of states and events of numbered rows: complete, and every way through it ends."""

from __future__ import annotations

from itertools import product

import pytest

from sparrowmq.core.errors import BrokerError, ProducerFencedError, SequenceTooOldError
from sparrowmq.spark.write.identity import STEPS_MAX, RowIdentity
from sparrowmq.spark.write.refusals import event_of
from sparrowmq.spark.write.row_states import TRANSITIONS, UNREACHABLE, RowEvent, RowState, after

ENDS = {RowState.STORED, RowState.STOPPED}
IDENTITY = RowIdentity("query", 7, 3)


@pytest.mark.parametrize(("state", "event"), list(product(RowState, RowEvent)))
def test_every_event_has_one_result_or_cannot_happen(state: RowState, event: RowEvent) -> None:
    assert (event in TRANSITIONS[state]) != (event in UNREACHABLE[state])
    if event in UNREACHABLE[state]:
        with pytest.raises(KeyError):
            after(state, event)


def test_every_state_is_reached_from_the_first_and_leads_to_an_end() -> None:
    def reached(state: RowState) -> set[RowState]:
        found, left = {state}, [state]
        while left:
            new = set(TRANSITIONS[left.pop()].values()) - found
            found |= new
            left.extend(new)
        return found

    assert reached(RowState.NUMBERED) == set(RowState)
    for state in RowState:
        assert bool(TRANSITIONS[state]) == (state not in ENDS)
        assert RowState.STORED in reached(state) or state is RowState.STOPPED
    assert {event for events in TRANSITIONS.values() for event in events} == set(RowEvent)


def test_rows_may_be_stored_twice_only_after_new_numbers() -> None:
    """Whatever leads to `STORED` is an answer or a comparison of these very numbers."""
    leading = {
        event for events in TRANSITIONS.values() for event, to in events.items() if to is RowState.STORED
    }
    assert leading == {RowEvent.TAKEN, RowEvent.SAME, RowEvent.FOLLOWED}
    assert set(TRANSITIONS[RowState.ANEW].values()) == {RowState.NUMBERED, RowState.STOPPED}


def fenced(epoch: int | None) -> BrokerError:
    return ProducerFencedError(90004, "", current=epoch)


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (BrokerError(90001, ""), RowEvent.LOST),
        (SequenceTooOldError(90002, "", known_from=0), RowEvent.FORGOTTEN),
        (BrokerError(90003, ""), RowEvent.REUSED),
        (fenced(IDENTITY.epoch(2)), RowEvent.STEP_BEGUN),
        (fenced(IDENTITY.epoch(STEPS_MAX)), RowEvent.BATCH_BEGUN),
        (fenced(IDENTITY.epoch(0) - 1), RowEvent.BATCH_BEGUN),
        (fenced(None), RowEvent.BATCH_BEGUN),
        (BrokerError(90005, ""), RowEvent.LOST),
        (BrokerError(90006, ""), RowEvent.LIMIT),
        (BrokerError(13, "illegal"), None),
    ],
)
def test_answers_of_brokers_are_events(error: BrokerError, event: RowEvent | None) -> None:
    assert event_of(error, IDENTITY, 0) is event
