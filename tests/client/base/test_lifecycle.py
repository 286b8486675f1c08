from __future__ import annotations

import asyncio
import itertools
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
from tests.support import about, run

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.base.lifecycle import TRANSITIONS, Lifecycle, State
from sparrowmq.core.errors import GroupTakenError, InvalidStateError


@pytest.mark.proves("client:A-29", "client:A-30", "client:A-32", "MUST-04")
@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_every_pair_of_states_is_a_transition_or_refused_by_name(before: State, after: State) -> None:
    life = Lifecycle("thing 'x'")
    life.state = before
    if after in TRANSITIONS[before]:
        life.to(after)
        assert life.state is after
    else:
        with pytest.raises(InvalidStateError, check=about(what=after.value, value=before.value)):
            life.to(after)
        assert life.state is before


def test_closed_is_final_and_reachable_from_everywhere() -> None:
    assert not TRANSITIONS[State.CLOSED]
    reached = {State.CLOSED}
    for _ in State:
        reached |= {state for state, following in TRANSITIONS.items() if following & reached}
    assert reached == set(State)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (State.CREATED, "start it first"),
        (State.FAILED, "error that stopped it"),
        (State.CLOSED, "make a new one"),
        (State.CLOSING, "make a new one"),
    ],
)
def test_use_of_a_stopped_client_says_what_to_do(state: State, advice: str) -> None:
    life = Lifecycle("producer 'p'")
    life.state = state
    with pytest.raises(InvalidStateError, match=advice):
        life.need_running()


def test_running_client_may_be_used() -> None:
    life = Lifecycle("producer 'p'")
    life.to(State.STARTING)
    with pytest.raises(InvalidStateError, check=about(what="running", value="starting")):
        life.need_running()
    life.to(State.RUNNING)
    life.need_running()
    assert life.state is State.RUNNING


def test_running_client_is_closed_in_a_forked_child_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getppid", lambda: 17)
    fresh, running = Lifecycle("producer 'p'"), Lifecycle("consumer 'c'")
    running.to(State.STARTING)
    running.to(State.RUNNING)
    for life in (fresh, running):
        life.forked()
    assert running.state is State.CLOSED
    for use in (running.need_running, lambda: running.to(State.STARTING)):
        with pytest.raises(InvalidStateError, check=about(what="process", value=17)):
            use()
    fresh.to(State.STARTING)
    fresh.to(State.RUNNING)
    fresh.need_running()


def test_running_start_or_close_can_be_awaited() -> None:
    async def main() -> None:
        life = Lifecycle("thing 'x'")
        await life.settled()
        for under_way, after in (
            (State.STARTING, State.CREATED),
            (State.STARTING, State.RUNNING),
            (State.CLOSING, State.CLOSED),
        ):
            life.to(under_way)
            gone = asyncio.create_task(life.settled())
            waiting = [asyncio.create_task(life.settled()) for _ in range(2)]
            await asyncio.sleep(0)
            assert not any(one.done() for one in waiting)
            gone.cancel()
            life.to(after)
            await asyncio.gather(*waiting)
            assert gone.cancelled() or gone.cancelling()

    run(main())


@pytest.mark.parametrize(
    ("error", "after"),
    [(None, State.RUNNING), (GroupTakenError("taken"), State.CREATED), (KeyError(), State.FAILED)],
)
def test_a_start_ends_in_the_state_of_its_outcome(error: Exception | None, after: State) -> None:
    life = Lifecycle("thing 'x'")
    with pytest.raises(type(error)) if error else nullcontext(), life.starting():
        assert life.state is State.STARTING
        if error is not None:
            raise error
    assert life.state is after


def test_a_start_does_not_hide_that_a_background_task_failed() -> None:
    life = Lifecycle("thing 'x'")
    with life.starting():
        life.to(State.FAILED)
    assert life.state is State.FAILED


def test_a_close_ends_what_was_started_once() -> None:
    ends: list[State] = []

    async def close(life: Lifecycle, error: Exception | None = None) -> None:
        async def end() -> None:
            ends.append(life.state)
            await asyncio.sleep(0)
            if error is not None:
                raise error

        await life.close(end)

    async def main() -> None:
        fresh, started, failed = (Lifecycle(name) for name in ("fresh", "started", "failed"))
        await close(fresh)
        assert (ends, fresh.state) == ([], State.CLOSED)
        with started.starting():
            closes = [asyncio.create_task(close(started)) for _ in range(2)]
            await asyncio.sleep(0)
            assert ends == []
        await asyncio.gather(*closes)
        assert (ends, started.state) == ([State.CLOSING], State.CLOSED)
        with pytest.raises(KeyError), failed.starting():
            raise KeyError
        with pytest.raises(ValueError, match="no"):
            await close(failed, ValueError("no"))
        assert (ends, failed.state) == ([State.CLOSING] * 2, State.CLOSED)

    run(main())


@pytest.mark.parametrize("package", [mq, aio])
def test_clients_are_not_pickled(package: Any) -> None:
    admin = package.Admin("127.0.0.1:1")
    for one in (admin, admin.topics, package.Producer("g", name_server="127.0.0.1:1")):
        with pytest.raises(TypeError) as refused:
            pickle.dumps(one)
        assert "it has connections; create one in each process" in str(refused.value)
