"""A push consumer's actions with RocketMQ's settings, by the second of a virtual clock."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from tests.client import churn
from tests.client.churn import SimCluster, run_virtually, virtual_time
from tests.client.fake import answer

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol.codes import RequestCode

GIVEN: dict[str, Any] = {"namesrv": "10.0.0.1:9876", "client_ip": "10.0.0.9", "consume_from": "first"}
LATE = 0.05
"""Seconds a simulated request and its answer may be under way together, and a little more."""


async def nothing(message: ReceivedMessage) -> None:
    """A handler. Threads do not follow the virtual clock, so handlers must be coroutines here."""


class World:
    """One consumer of topic T for a while, with its requests to broker-a and their times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Mapping[int, list[float]] = defaultdict(list)
        self._monkeypatch = monkeypatch
        virtual_time(1, monkeypatch)

    def script(self, code: RequestCode, instead: Any = None) -> None:
        """Record when requests arrive; `instead(command)` answers in the broker's place unless it returns
        None."""
        usual = churn.TABLE[code]

        def noting(broker: Any, conn: Any, command: Any) -> Any:
            if broker.name == "broker-a" and command.ext.get("topic", "T") == "T":
                self.times[code].append(asyncio.get_running_loop().time())
                found = None if instead is None else instead(command)
                if found is not None:
                    return found
            return usual(broker, conn, command)

        self._monkeypatch.setitem(churn.TABLE, code, noting)

    def run(self, seconds: float, handler: Any = nothing, *, messages: int = 0, **values: Any) -> None:
        """Run the consumer for this long."""

        async def main() -> None:
            world = SimCluster(random.Random(1))
            world.topics["T"].pop("broker-b")
            for number in range(messages):
                world.brokers["broker-a"].store("T", 0, b"%d" % number)
            route = world.route

            def noting(conn: Any, command: Any) -> Any:
                self.times[RequestCode.GET_ROUTEINFO_BY_TOPIC].append(asyncio.get_running_loop().time())
                return route(conn, command)

            world.route = noting
            consumer = PushConsumer("g", settings=ConsumerSettings(**{**GIVEN, **values}))
            consumer.subscribe("T", handler=handler)
            async with consumer:
                await asyncio.sleep(seconds)
                kept = {code: list(times) for code, times in self.times.items()}
            self.times = kept  # what closing does is left out

        run_virtually(main())


def seconds(times: list[float]) -> list[int]:
    return sorted({round(time) for time in times})


@pytest.mark.proves("client:A-34", "client:A-35", "client:A-36", "client:C-01", "client:A.5")
def test_routes_heartbeats_offsets_and_rebalance_have_their_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    codes = (
        RequestCode.HEART_BEAT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    )
    for code in codes:
        world.script(code)
    world.run(99, messages=1)
    assert [second for second in seconds(world.times[RequestCode.HEART_BEAT]) if second] == [1, 31, 61, 91]
    assert seconds(world.times[RequestCode.GET_ROUTEINFO_BY_TOPIC]) == [0, 30, 60, 90]
    offsets = seconds(world.times[RequestCode.UPDATE_CONSUMER_OFFSET])
    assert offsets and not [second for second in offsets if second % 5], offsets
    assert len(offsets) > 10, "again and again, though nothing is new; a few are lost on the way"
    rounds = seconds(world.times[RequestCode.GET_CONSUMER_LIST_BY_GROUP])
    early = [second for second in rounds if second < 20]
    assert max(early) <= 2, "the start and the first heartbeat wake it"
    late = rounds[len(early) :]
    assert len(late) == 4 and {b - a for a, b in itertools.pairwise(late)} == {20}, rounds


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


@pytest.mark.proves("client:D-28", "client:D-29", "client:D-30", "client:D-31")
@pytest.mark.parametrize(
    ("code", "delay"), [(215, 0.02), *((code, 1.0) for code in (1, 2, 14, 16, 17, 23, 24, 25, 26))]
)
def test_failed_pulls_are_repeated_for_ever_after_their_delay(
    code: int, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy brokers after 20 ms; expressions, groups, permissions and topics a broker does not know, as any
    other failure, after a second. Who has not heard of the member is told, and asked again at once, the
    first time."""
    world, got = World(monkeypatch), list[ReceivedMessage]()

    async def keep(message: ReceivedMessage) -> None:
        got.append(message)

    def refuse(command: Any) -> Any:
        if command.ext["queueId"] != "0" or asyncio.get_running_loop().time() > 50 * delay:
            return None
        refused.append(asyncio.get_running_loop().time())
        return answer(code, remark="no")

    refused: list[float] = []
    world.script(RequestCode.PULL_MESSAGE, refuse)
    world.run(60 * delay + 5, keep, messages=3)
    between = gaps(refused)
    assert len(between) > 20
    if code in (24, 25, 26):
        assert between.pop(0) < 0.1, between
    assert all(delay <= gap <= delay + LATE for gap in between), between
    assert len(got) == 3, "and as soon as the broker takes it again, messages come"


@pytest.mark.proves("client:D-54")
def test_message_no_broker_accepts_back_is_handled_again_locally_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, times = World(monkeypatch), list[float]()
    world.script(RequestCode.CONSUMER_SEND_MSG_BACK, lambda command: answer(1, remark="no"))

    async def handle(message: ReceivedMessage) -> None:
        times.append(asyncio.get_running_loop().time())
        raise ValueError("not yet")

    world.run(40, handle, messages=1)
    between = gaps(times)
    assert len(between) > 4
    assert all(5.0 <= gap <= 5.0 + 3 * LATE for gap in between), between
