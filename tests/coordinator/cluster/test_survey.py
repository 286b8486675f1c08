"""A survey of a real broker, and the effect of its repairs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.coordinator.cluster import asked
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.coordinator.cluster.survey import disk_of, log_of, rules_of
from sparrowmq.coordinator.upkeep.consistency_rules import look
from sparrowmq.coordinator.upkeep.landscape import Loss
from sparrowmq.coordinator.upkeep.logs import FILE_BYTES, CleaningRules
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.runtime.servers import LocalServers
from sparrowmq.testing import LocalCluster

GIB = 1 << 30


async def prepared(admin: aio.Admin, namesrv: str) -> int:
    """A topic with four messages and a group that has read one; returns the time in between."""
    await admin.topics.create("T", queues=1)
    await admin.groups.create("g")
    async with aio.Producer("p", namesrv=namesrv) as producer:
        for _ in range(3):
            await producer.send(mq.Message("T", b"x"))
        last = await admin.topics.status("T")
        before = last[0].last_update_ms + 1
        await until(lambda: time.time() * 1000 > before + 1)
        await producer.send(mq.Message("T", b"x"))
    await admin.groups.commit("g", MessageQueue("T", "broker-a", 0), 1)
    return before


def test_real_cluster_is_surveyed_and_repaired() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            survey = asked.survey(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                before = await prepared(admin, local.namesrv)
                (log,) = (await survey.disks()).logs
                assert (log.name, log.host, log.rules.reserved_hours) == ("broker-a", "127.0.0.1", 72)
                assert 0 == log.now.log_min < log.now.log_max
                assert 0 <= log.now.free <= log.now.total
                assert 0 < log.earliest_ms <= before

                lost, failed = await survey.losses({"broker-a": before})
                assert (lost, failed) == ([Loss("g", "T", "broker-a", 2)], {})
                assert (await survey.losses({"other": before}))[0] == []

                assert look(await survey.landscape()) == []
                use = await survey.use()
                assert [(one.first, one.next) for one in use.ends["T"]] == [(0, 4)]
                assert (use.progress["T"], use.groups["g"], use.readers.get("T")) == (1, False, None)

                # As brokers have it that take any commit.
                servers = local._servers
                assert servers is not None and servers.broker is not None
                servers.broker.parts.offsets.commit("T", "g", 0, 99)
                (beyond,) = look(await survey.landscape())
                assert (beyond.kind, beyond.key) == ("offset-beyond", "g T broker-a 0")
                assert beyond.repair is not None
                await survey.set_offset(
                    "g", MessageQueue("T", "broker-a", 0), beyond.repair.arguments["offset"]
                )
                assert look(await survey.landscape()) == []
            await survey.close()
            await survey.close()

    run(main())


def test_differing_brokers_of_a_cluster_are_repaired(tmp_path: Path) -> None:
    async def main() -> None:
        with LocalCluster() as local:
            settings = BrokerSettings(
                broker_name="broker-b",
                listen_port=0,
                store_path_root_dir=tmp_path,
                namesrv_addr=local.namesrv,
                mapped_file_size_commit_log=1 << 20,
            )
            second = LocalServers(None, settings)
            await second.start()
            survey = asked.survey(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=4)
                await admin.groups.create("g")
                one, two = sorted((await admin.brokers.cluster_info()).brokers)
                wide = (await admin.brokers.topics(one)).configs["T"]
                await admin.topics.set_perm("T", 4, broker_name=two)
                (differs,) = look(await survey.landscape())
                assert differs.key == f"T {two}"
                await survey.put_topic(two, wide)
                assert look(await survey.landscape()) == []
                await survey.put_group(two, (await admin.brokers.groups(one))["g"])
                await survey.clear_topic(two, "T")
                await survey.unlist_topic("T")
                seen = await survey.landscape(ends=False)
                assert ["T" in broker.topics for broker in seen.brokers] == [True, False]
                assert seen.ends == {}
            await survey.close()
            await second.close()

    run(main())


def test_reading_members_are_found() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            survey = asked.survey(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=1)
            async with aio.PushConsumer("g", namesrv=local.namesrv) as consumer:
                consumer.subscribe("T", handler=lambda message: None)

                async def online() -> bool:
                    use = await survey.use()
                    return use.groups.get("g", False) and use.readers.get("T") == {"g": 1}

                await until(online)
            await survey.close()

    run(main())


def test_unavailable_cluster_is_an_error() -> None:
    async def main() -> None:
        survey = asked.survey("127.0.0.1:1")
        try:
            with pytest.raises(SparrowError):
                await survey.disks()
        finally:
            await survey.close()

    run(main())


@pytest.mark.proves("broker:16.1")
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("Total : 100.0 GiB, Free : 9.5 GiB.", (100 * GIB, 9 * GIB + GIB // 2)),
        ("Total : 512 B, Free : 0 B.", (512, 0)),
        ("Total : 1.0 GiB, Free : 2.0 GiB.", (GIB, GIB)),
        ("Total : unknown, Free : unknown.", (0, 0)),
        ("Total : 1.0 XB, Free : 1.0 B.", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_disk_sizes_are_read(text: str, sizes: tuple[int, int]) -> None:
    assert disk_of({"commitLogDirCapacity": text}) == sizes


def test_broker_with_missing_or_invalid_data_gets_the_defaults() -> None:
    assert rules_of({}) == CleaningRules()
    odd = {"deleteWhen": "25", "fileReservedTime": "-1", "mappedFileSizeCommitLog": "0"}
    assert rules_of(odd) == CleaningRules()
    told = {
        "deleteWhen": "04;16",
        "fileReservedTime": "48",
        "diskMaxUsedSpaceRatio": "60",
        "cleanFileForciblyEnable": "false",
        "diskSpaceCleanForciblyRatio": "70",
        "diskSpaceWarningLevelRatio": "80",
        "mappedFileSizeCommitLog": "4096",
    }
    assert rules_of(told) == CleaningRules(48, frozenset({4, 16}), 60, False, 70, 80, 4096)
    log = log_of("a", "[::1]:10911", {"commitLogMaxOffset": "x", "commitLogMinOffset": "9" * 30}, 7)
    assert (log.host, log.now, log.earliest_ms) == ("[::1]", (7, 0, 0, 0, 0), 0)
    assert log.rules.file_bytes == FILE_BYTES
