"""Reports of real members about their handlers and their plans."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from tests.coordinator.cluster.asked import observed
from tests.coordinator.groups.serving import serve_members
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.consumer import managed
from sparrowmq.client.push import member
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.coordinator.cluster.member_reports import READ_PROPERTIES, lean
from sparrowmq.coordinator.groups import leader as groups
from sparrowmq.coordinator.services.groups.handlers import failing, head
from sparrowmq.coordinator.services.groups.plans import different
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY, generations_of
from sparrowmq.testing import LocalCluster


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setattr(managed, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(groups, "STEP_SECONDS", 0.025)


@pytest.mark.proves("client:D-86")
def test_hanging_or_failing_handlers_and_returned_messages_are_detected() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def handle(message: aio.ReceivedMessage) -> None:
            if message.body == b"hang":
                await go_on.wait()
            else:
                raise ValueError("cannot")

        with LocalCluster() as local:
            cluster = observed(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=2)
                await admin.groups.create("g")
            async with aio.Producer("p", namesrv=local.namesrv) as producer:
                for number, body in enumerate((b"hang", b"fail")):
                    await producer.send(mq.Message("T", body), queue=mq.MessageQueue("T", "broker-a", number))
            settings = aio.ConsumerSettings(consume_from="first", max_reconsume_times=0)
            async with aio.PushConsumer("g", namesrv=local.namesrv, settings=settings) as consumer:
                consumer.subscribe("T", handler=handle)

                async def hanging() -> bool:
                    (one,) = (await cluster.told()).groups["g"] or [None]
                    held = (
                        one.info.queues.get(mq.MessageQueue("T", "broker-a", 0)) if one and one.info else None
                    )
                    return held is not None and head(held) == 0

                async def fails() -> bool:
                    found = failing((await cluster.told()).groups)
                    return [one.key for one in found] == ["g T broker-a 1"]

                await until(hanging)
                presence = await cluster.presence()
                (connected,) = presence.groups["g"].values()
                assert [one.language for one in connected] == ["PYTHON"]
                assert "g" not in presence.loose
                await until(fails)

                async def dead() -> bool:
                    return (await cluster.stored(DLQ_PREFIX)).counts.get("g", 0) == 1

                await until(dead)
                assert "g" in (await cluster.stored(RETRY_PREFIX)).counts
                go_on.set()
            await cluster.close()

    run(main())


def test_managed_member_reports_its_generations_and_agrees_with_the_plan() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            cluster = observed(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=2)
                async with serve_members(ClusterCalls(admin), host="127.0.0.1", port=0):
                    settings = aio.ConsumerSettings(managed=True)
                    async with aio.PushConsumer("g", namesrv=local.namesrv, settings=settings) as consumer:
                        consumer.subscribe("T", handler=lambda message: None)

                        async def numbered() -> bool:
                            (one,) = (await cluster.told()).groups.get("g") or [None]
                            text = (
                                one.info.properties.get(GENERATIONS_PROPERTY, "") if one and one.info else ""
                            )
                            return len([q for q in generations_of(text) if q.topic == "T"]) == 2

                        await until(numbered)
                        told, grants = await cluster.told(), await cluster.grants()
                        assert different("g", told.groups["g"], grants["g"]) == []
                        later = [
                            mq.QueueGrant(
                                one.topic, one.broker_name, one.queue_id, one.generation + 1, one.owner
                            )
                            for one in grants["g"]
                        ]
                        (found,) = different("g", told.groups["g"], later)
                        assert "under generation" in found.text
            await cluster.close()

    run(main())


def test_kept_reports_have_the_settings_that_services_read() -> None:
    read = dict.fromkeys(READ_PROPERTIES, "x")
    info = ConsumerRunningInfo(read | {f"setting{number}": "y" for number in range(70)}, jstack="stack")
    found = lean(aio.MemberStatus("c", info))
    assert found.info is not None and found.info.properties == read
    assert structs.replace(found.info, properties=info.properties) == info, "the rest stays"
    silent = aio.MemberStatus("c", error="no answer")
    assert lean(silent) is silent
