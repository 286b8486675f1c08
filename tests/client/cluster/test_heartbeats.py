"""The contents of heartbeats, and what they omit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.cluster.test_instance import Member
from tests.client.fake import answer, fake_cluster
from tests.support import is_connected, run, until

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.heartbeats import Heartbeats, fingerprint
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.codes import RequestCode

AGREES = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


def consumer(*topics: str, group: str = "g", version: int = 1) -> ConsumerData:
    return ConsumerData(
        group, subscriptions=tuple(SubscriptionData(topic, version=version) for topic in topics)
    )


def said(heartbeats: Heartbeats, *consumers: ConsumerData, ext: dict[str, str] = AGREES) -> HeartbeatData:
    """The heartbeat sent to a broker, which answers with `ext`."""
    beat = heartbeats.beat(["p"], consumers)
    body = heartbeats.body("a:1", beat)
    heartbeats.taken("a:1", beat, ext)
    return HeartbeatData.decode(body)


def test_version_1_sends_everything_whatever_brokers_answer() -> None:
    heartbeats = Heartbeats("c", version_2=False)
    for _ in range(2):
        beat = said(heartbeats, consumer("T"))
        assert (beat.client_id, beat.producers, beat.fingerprint) == ("c", (ProducerData("p"),), 0)
        assert beat.consumers == (consumer("T"),) and not beat.without_sub


@pytest.mark.proves("client:A-63")
def test_known_data_is_omitted_until_it_changes() -> None:
    heartbeats = Heartbeats("c", version_2=True)
    whole = said(heartbeats, consumer("T", "U"))
    assert not whole.without_sub and whole.consumers == (consumer("T", "U"),) and whole.fingerprint
    short = said(heartbeats, consumer("T", "U"))
    assert short.without_sub and short.fingerprint == whole.fingerprint
    assert short.consumers == (consumer(),) and short.producers == (ProducerData("p"),)
    assert not said(heartbeats, consumer("T")).without_sub
    assert said(heartbeats, consumer("T")).without_sub
    newer = said(heartbeats, consumer("T", version=2))
    assert not newer.without_sub, "brokers refuse pulls that are newer than what they were told"


@pytest.mark.proves("client:A-63")
@pytest.mark.parametrize(
    "ext",
    [
        {},
        {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"},
        {"IS_SUPPORT_HEART_BEAT_V2": "true"},
        {"IS_SUB_CHANGE": "false"},
    ],
)
def test_broker_that_disagrees_gets_everything_again(ext: dict[str, str]) -> None:
    heartbeats = Heartbeats("c", version_2=True)
    said(heartbeats, consumer("T"))
    assert said(heartbeats, consumer("T"), ext=ext).without_sub
    for _ in range(2):
        assert not said(heartbeats, consumer("T"), ext=ext).without_sub


def test_brokers_are_forgotten_one_by_one_or_all() -> None:
    heartbeats = Heartbeats("c", version_2=True)
    beat = heartbeats.beat([], [consumer("T")])
    for address in ("a:1", "b:1", "c:1"):
        heartbeats.taken(address, beat, AGREES)
    heartbeats.forget("a:1")
    assert [heartbeats.body(f"{name}:1", beat) == beat.short for name in "abc"] == [False, True, True]
    heartbeats.forget()
    assert [heartbeats.body(f"{name}:1", beat) == beat.whole for name in "abc"] == [True] * 3


@pytest.mark.proves("client:A-63")
def test_equal_subscriptions_have_the_same_fingerprint() -> None:
    def of(client: str, *consumers: ConsumerData, producers: str = "pq") -> int:
        return fingerprint(HeartbeatData(client, tuple(map(ProducerData, producers)), consumers))

    one = of("c1", consumer("T", "U"), consumer("V", group="h"))
    assert one == of("c2", consumer("V", group="h"), consumer("U", "T", version=9), producers="qp")
    others = [
        of("c1", consumer("T", "V"), consumer("V", group="h")),
        of("c1", consumer("T", "U"), consumer("V", group="i")),
        of("c1", consumer("T", "U"), consumer("V", group="h"), producers="p"),
        of("c1", ConsumerData("g", subscriptions=(SubscriptionData("T", "a"), SubscriptionData("U")))),
    ]
    assert one not in others and len({*others}) == 4


@pytest.mark.proves("client:A-63")
def test_only_periodic_heartbeats_omit_data() -> None:
    """Other heartbeats are sent after a change; and a lost connection may mean a restart."""

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            broker = cluster.broker

            def agree(conn: Any, command: Any) -> Any:
                broker.heartbeat(conn, command)
                return answer(ext=AGREES)

            broker.on[int(RequestCode.HEART_BEAT)] = agree
            settings = ClientSettings(namesrv=cluster.namesrv, heartbeat_v2=True)
            instance = ClientInstance(settings)
            instance.register_consumer("g", Subscribed("T"))
            await instance.update_route("T")
            assert await instance.heartbeat()
            await until(lambda: len(broker.heartbeats) == 2)  # one with the connection
            for _ in range(2):
                await instance._beat()
            assert await instance.heartbeat()
            await instance._beat()
            assert [beat.without_sub for beat in broker.heartbeats] == [False, False, True, True, False, True]
            for conn in list(broker.server.connections):
                conn.abort()
            await until(lambda: not is_connected(instance.remoting, broker.server.address))
            await instance._beat()
            await until(lambda: len(broker.heartbeats) >= 8)
            assert not broker.heartbeats[6].without_sub
            await instance.close()

    run(main())


class Subscribed(Member):
    """A member with a subscription."""

    def heartbeat_data(self) -> ConsumerData:
        return consumer("T")
