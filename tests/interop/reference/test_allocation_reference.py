"""Allocation strategies against the reference's classes: the same share for every member, or both refuse."""

from __future__ import annotations

import os
import random
from typing import Any, Final

import pytest
from tests.interop.driver import JavaDriver

from sparrowmq.core.allocation import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    queue_key,
    utf16_key,
)
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

pytestmark = pytest.mark.interop

SEED: Final = int(os.environ.get("SPARROW_SEED", "20"))
ROUNDS: Final = 400 if os.environ.get("SPARROW_TEST_TIER") == "long" else 40
ROOMS: Final = ("hz", "sh", "bj")


class ByDash:
    """Rooms as the Java side has them: what stands before the first dash."""

    def queue_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def client_room(self, client_id: str) -> str:
        return client_id.partition("-")[0]


def _pair(
    rng: random.Random, kind: str, queues: list[MessageQueue]
) -> tuple[AllocateStrategy, dict[str, Any]]:
    """Our strategy and the request for theirs."""
    match kind:
        case "AVG":
            return Averagely(), {}
        case "AVG_BY_CIRCLE":
            return AveragelyByCircle(), {}
        case "CONSISTENT_HASH":
            count = rng.choice((0, 1, 10, 10, 40))
            return ConsistentHash(count), {"virtual_nodes": count}
        case "MACHINE_ROOM":
            rooms = rng.sample(ROOMS, rng.randint(0, 3))
            return ByMachineRoom(rooms), {"rooms": rooms}
        case "CONFIG":
            chosen = rng.sample(queues, rng.randint(0, min(4, len(queues))))
            return ByConfig(chosen), {"configured": [_wire(queue) for queue in chosen]}
        case _:
            inner, request = _pair(rng, rng.choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")), queues)
            return MachineRoomNearby(inner, ByDash()), {"inner": {"strategy": inner.name, **request}}


def _wire(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "id": queue.queue_id}


def _group(rng: random.Random) -> tuple[list[MessageQueue], list[str]]:
    rooms = (*ROOMS, "", "𝟘", "～")
    brokers = {
        f"{rng.choice(rooms)}{rng.choice('@@@--')}b{rng.randrange(5)}" for _ in range(rng.randint(1, 8))
    }
    brokers |= {rng.choice(("broker-a", "hz@b@", "hz@b@c", "@"))}
    queues = [MessageQueue("T", broker, n) for broker in brokers for n in range(rng.randint(1, 12))]
    ids = [
        f"{rng.choice((*ROOMS, '10.0.0.1', '～', '𝟘'))}-{n}@{rng.randrange(9)}"
        for n in range(rng.randint(1, 12))
    ]
    if rng.random() < 0.2:
        ids.append(rng.choice(ids))  # one with two connections
    rng.shuffle(queues)
    rng.shuffle(ids)
    return queues, ids


@pytest.mark.proves("client:C.5", "client:C-16", "client:C-17", "client:C-18", "client:Z-04")
@pytest.mark.parametrize(
    "kind", ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONSISTENT_HASH"]
)
def test_every_share_is_the_references_to_the_last_queue(driver: JavaDriver, kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    compared = 0
    for number in range(ROUNDS):
        queues, ids = _group(rng)
        ours, request = _pair(rng, kind, queues)
        if number % 10 == 9:
            queues = []
        asked = ["", "nobody", *sorted(set(ids))]
        wire = [_wire(queue) for queue in queues]
        theirs = driver.call(
            "Allocations.allocate", strategy=kind, **request, queues=wire, client_ids=ids, asked=asked
        )
        queues, ids = sorted(queues, key=queue_key), sorted(ids, key=utf16_key)
        assert theirs["name"] == ours.name
        assert theirs["queues"] == [_wire(queue) for queue in queues]
        assert theirs["client_ids"] == ids
        for client, answer in zip(asked, theirs["shares"], strict=True):
            try:
                share: list[dict[str, Any]] | None = [
                    _wire(queue) for queue in ours.allocate("group", client, queues, ids)
                ]
            except AllocationError:
                share = None
            assert share == answer.get("queues"), (SEED, number, client, answer)
            compared += len(share or ())
    assert compared > ROUNDS
