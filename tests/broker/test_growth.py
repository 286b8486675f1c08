"""Topics and groups that were used and deleted leave nothing behind: every container is counted."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import pull_ext, send_command
from tests.broker.test_server import Caller, ask, serving
from tests.support import run, until

from sparrowmq.core.message import MessageQueue
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData, LockBatchRequestBody, wire_queues
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.frame import Command

NAMES = 12
BOUNDED = {
    "MessageIndex._topics": "10,000 topics, then it begins anew",
    "_Topic.keys": "of those",
    "_Topic.tags": "of those",
    "KeyHashes._heads": "of those",
    "PlainSends._tag_codes": "10,000 tags, then it begins anew",
    "PullPath._taken": "queues and groups of the pulls since the last sample",
    "PlainSends._known": "4,096 shapes, then it begins anew",
    "SafePoint.deleted": "until the log has no message of the topic any more",
    "QueueTable._deleted": "the same table",
    "LockTable._groups": "until a minute after the last claim",
    "StoreStats._samples": "the samples of ten minutes",
    "BrokerStats._gone": "until the next sample",
    "Item.minute": "7 samples of what is counted still",
    "Item.hour": "7 samples of what is counted still",
    "Item.day": "25 samples of what is counted still",
    "Occasional": "64 kinds",
    "PendingCalls._slots": "until the time of the calls is up",
}
"""What may grow, and what ends it."""


def sizes(*roots: object) -> Counter[str]:
    """How many entries all reachable containers have, by the attribute that holds them."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = [(root, type(root).__name__) for root in roots]
    while waiting:
        one, path = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            found[path] += len(one)
            waiting += [(value, path) for pair in one.items() for value in pair if type(value) is not str]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            found[path] += len(one)
            waiting += [(value, path) for value in one]
        elif type(one).__module__.startswith("sparrowmq."):
            waiting += [(value, f"{type(one).__name__}.{name}") for name, value in attributes(one)]
        else:
            waiting += bound(one, path)
    return found


def attributes(one: object) -> list[tuple[str, Any]]:
    names = [*getattr(one, "__dict__", {})]
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [(name, getattr(one, name)) for name in names if hasattr(one, name)]


def bound(one: object, path: str) -> list[tuple[Any, str]]:
    """The objects that a method or a closure refers to."""
    found = [(one.__self__, path)] if hasattr(one, "__self__") else []
    for cell in getattr(one, "__closure__", None) or ():
        found.append((cell.cell_contents, path))
    return found


async def use(call: Caller, topic: str, group: str) -> None:
    """Everything that a topic and a group go through, except their deletion."""

    async def good(command: Command) -> None:
        answer = await call(command)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE), answer

    assert (await call.create(topic)).code == ResponseCode.SUCCESS
    await good(
        Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=f'{{"groupName":"{group}"}}'.encode())
    )
    consumer = ConsumerData(group, subscriptions=(parse_tags(topic, "*", 1),))
    await good(
        Command(RequestCode.HEART_BEAT, body=HeartbeatData(f"{group}@1", consumers=(consumer,)).encode())
    )
    for number in range(3):
        marks = f"UNIQ_KEY\x01{topic}{number}\x02TAGS\x01t{topic}\x02"
        await good(send_command(b"x", topic=topic, queue_id=0, properties=marks))
    pull = {**pull_ext(), "consumerGroup": group, "topic": topic}
    await good(Command(RequestCode.PULL_MESSAGE, ext=pull))
    place = {"consumerGroup": group, "topic": topic, "queueId": 0}
    await good(ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **place))
    await good(ask(RequestCode.QUERY_CONSUMER_OFFSET, **place))
    locks = LockBatchRequestBody(f"{group}@1", group, wire_queues([MessageQueue(topic, "broker-a", 0)]))
    await good(Command(RequestCode.LOCK_BATCH_MQ, body=locks.encode()))
    await good(ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, group=group, topic=topic, readable="false"))
    await good(ask(RequestCode.PUT_RETENTION_HOLD, group=group, topic=topic, hours=1, sizeMax=0))
    await good(ask(RequestCode.GET_CONSUME_STATS, consumerGroup=group))
    await good(ask(RequestCode.GET_TOPIC_STATS_INFO, topic=topic))


async def end(call: Caller, names: NameServer, topic: str, group: str) -> None:
    leave = ask(RequestCode.UNREGISTER_CLIENT, clientID=f"{group}@1", consumerGroup=group)
    for command in (
        leave,
        ask(RequestCode.DELETE_RETENTION_HOLD, topic=topic),
        ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset="true"),
        ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic),
    ):
        assert (await call(command)).code == ResponseCode.SUCCESS
    gone = ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic)
    assert (await call(gone, to=names.address)).code == ResponseCode.SUCCESS
    retry = ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=f"%RETRY%{group}")
    assert (await call(retry, to=names.address)).code == ResponseCode.SUCCESS


def test_deleted_topics_and_groups_leave_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> Counter[str]:
        names = NameServer(port=0)
        await names.start()
        try:
            async with serving(tmp_path, namesrv_addr=names.address) as call:
                stats = call.broker.parts.upkeep.stats
                seen: list[Counter[str]] = []
                for turn in range(4):
                    for number in range(NAMES):
                        await use(call, f"T{turn}x{number}", f"g{turn}x{number}")
                    stats._due = 0.0
                    stats.tick()
                    for number in range(NAMES):
                        await end(call, names, f"T{turn}x{number}", f"g{turn}x{number}")
                    stats._due = 0.0
                    stats.tick()
                    await until(lambda: not call.broker.parts.topics._unsaved)
                    await asyncio.sleep(0.05)
                    gc.collect()
                    seen.append(sizes(call.broker, names))
                return Counter({path: seen[3][path] - seen[1][path] for path in seen[3]})
        finally:
            await names.close()

    grown = run(scenario())
    kept = {path: count for path, count in grown.items() if count >= NAMES}
    assert {path: count for path, count in kept.items() if not path.startswith(tuple(BOUNDED))} == {}


@pytest.mark.parametrize("kind", [dict, list, set])
def test_count_finds_growing_containers(kind: type[Any]) -> None:
    class Holder:
        """An object like one of ours."""

        __module__ = "sparrowmq.broker.holder"

        def __init__(self, count: int) -> None:
            self.things: Any = kind(zip(range(count), range(count), strict=True))

    assert sizes(Holder(5))["Holder.things"] > sizes(Holder(2))["Holder.things"] >= 2
