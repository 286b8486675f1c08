"""What the services of upkeep see of Apache's broker and change there; ours has the same tests by itself."""

from __future__ import annotations

import pytest
from tests.coordinator.cluster import asked
from tests.interop.apache import ApacheCluster
from tests.support import run

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.coordinator.upkeep.consistency_rules import look
from sparrowmq.coordinator.upkeep.landscape import Loss
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

pytestmark = pytest.mark.interop


def test_apaches_broker_is_seen_and_mended(apache: ApacheCluster, name: str) -> None:
    async def main() -> None:
        survey = asked.survey(apache.namesrv)
        async with aio.Admin(namesrv=apache.namesrv) as admin:
            await admin.topics.create(name, queues=1)
            await admin.groups.create(name)
            (broker,) = (await admin.brokers.cluster_info()).brokers
            queue = MessageQueue(name, broker, 0)
            async with aio.Producer("upkeep", namesrv=apache.namesrv) as producer:
                for _ in range(3):
                    await producer.send(mq.Message(name, b"x"))
            await admin.groups.commit(name, queue, 1)

            (log,) = (await survey.disks()).logs
            assert (log.name, log.rules.delete_hours) == (broker, {4})
            assert log.rules.reserved_hours in (72, 49)  # other tests of this cluster may have set the latter
            assert 0 <= log.now.log_min < log.now.log_max
            assert 0 < log.now.free <= log.now.total
            assert log.earliest_ms > 0
            lost, _ = await survey.losses({broker: 2**62})
            assert Loss(name, name, broker, 2) in lost
            use = await survey.use()
            assert (use.progress[name], use.groups[name], use.ends[name][0].next) == (1, False, 3)

            land = await survey.landscape()
            assert name in land.brokers[0].topics
            assert name in land.brokers[0].groups
            assert all(name in topics for topics in land.listed.values())
            assert [one for one in look(land) if name in one.key] == []
            await admin.groups.commit(name, queue, 99)
            (beyond,) = (one for one in look(await survey.landscape()) if name in one.key)
            assert (beyond.kind, beyond.repair and beyond.repair.arguments["offset"]) == ("offset-beyond", 3)
            await survey.set_offset(name, queue, 3)

            wide = TopicConfig(topic_name=name, read_queue_nums=3, write_queue_nums=3, perm=4)
            await survey.put_topic(broker, wide)
            await survey.put_group(broker, SubscriptionGroupConfig(group_name=name, retry_max_times=3))
            (tables,) = (await survey.landscape(ends=False)).brokers
            assert (tables.topics[name].read_queue_nums, tables.topics[name].perm) == (3, 4)
            assert tables.groups[name].retry_max_times == 3
            assert tables.offsets[name][queue] == 3
            await survey.clear_topic(broker, name)
            await survey.unlist_topic(name)
            land = await survey.landscape(ends=False)
            assert name not in land.brokers[0].topics
            assert name not in land.brokers[0].offsets
            assert not any(name in topics for topics in land.listed.values())
        await survey.close()

    run(main())
