"""Heartbeats of version 2, which leave out subscriptions that did not change: Java's and ours."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.ours import CONSUMER, OurClients
from tests.support import until_sync

from sparrowmq import aio
from sparrowmq.broker.members import membership
from sparrowmq.client.base.hooks import RpcHook
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.protocol.bodies import HeartbeatData
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HeartbeatData]]:
    """The heartbeats that our broker gets."""
    came: list[HeartbeatData] = []

    def decoding(body: bytes) -> Generator[None, None, HeartbeatData]:
        came.append((yield from HeartbeatData.decoding(body)))
        return came[-1]

    monkeypatch.setattr(membership, "HeartbeatData", SimpleNamespace(decoding=decoding))
    yield came


def _is_left_out(beats: list[HeartbeatData], group: str) -> bool:
    """Whether the latest heartbeat of a group's member left its subscriptions out."""
    of_group = [beat for beat in list(beats) if any(one.group == group for one in beat.consumers)]
    return bool(of_group) and of_group[-1].without_sub


@pytest.mark.proves("client:A-63")
def test_javas_consumer_leaves_out_what_our_broker_knows(
    driver: JavaDriver, name: str, beats: list[HeartbeatData]
) -> None:
    group, other = f"{name}_c", f"{name}_other"
    with LocalCluster() as cluster:
        for topic in (name, other):
            cluster.create_topic(topic, 1)
        handle = driver.call("Heartbeats.start", namesrv=cluster.namesrv, group=group, topic=name)
        try:
            with driver.producer(cluster.namesrv, f"{name}_p") as producer:

                def comes(topic: str, total: int) -> None:
                    producer.send([Message(topic, b"x")])
                    until_sync(lambda: driver.call("Heartbeats.seen", handle=handle) == total)

                comes(name, 1)
                until_sync(lambda: _is_left_out(beats, group))
                driver.call("Heartbeats.subscribe", handle=handle, topic=other)
                comes(other, 2)
                until_sync(lambda: _is_left_out(beats, group))
                cluster.restart_broker()
                beats.clear()
                comes(name, 3)
                comes(other, 4)
                told = [one for beat in beats if not beat.without_sub for one in beat.consumers]
                assert any({other, name} <= {data.topic for data in one.subscriptions} for one in told)
                until_sync(lambda: _is_left_out(beats, group))
        finally:
            driver.call("Heartbeats.stop", handle=handle)


class _Beats(RpcHook):
    """Notes each heartbeat with the header fields of its answer."""

    def __init__(self) -> None:
        self.came: list[tuple[bool, dict[str, str]]] = []

    def before_request(self, address: str, command: Command) -> None:
        """Nothing is changed."""

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Keep what was said, and what the broker says to it."""
        if command.code == RequestCode.HEART_BEAT:
            self.came.append((HeartbeatData.decode(command.body).without_sub, dict(answer.ext)))


@pytest.mark.proves("client:A-63")
def test_apaches_broker_and_our_consumer_leave_out_the_same(
    apache: ApacheCluster, our_clients: OurClients, driver: JavaDriver, name: str
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 1)
    came: list[ReceivedMessage] = []
    hook: Any = _Beats()
    settings = replace(CONSUMER, heartbeat_v2=True, heartbeat_interval=0.2, hooks=[hook])
    consumer = aio.PushConsumer(f"{name}_c", namesrv=apache.namesrv, settings=settings)
    consumer.subscribe(name, "*", came.append)
    our_clients.run(consumer.start())
    try:
        until_sync(lambda: any(left_out for left_out, _ in hook.came))
        with driver.producer(apache.namesrv, f"{name}_p") as producer:
            producer.send([Message(name, b"x")])
            until_sync(lambda: came)
        assert {ext["IS_SUPPORT_HEART_BEAT_V2"] for _, ext in hook.came} == {"true"}
    finally:
        our_clients.run(consumer.close())
