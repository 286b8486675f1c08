from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run, until_sync

import sparrowmq as mq
from sparrowmq.client.admin import groups as groups_module
from sparrowmq.client.admin.admin import Admin
from sparrowmq.core.errors import BrokerError, ClientError, InvalidNameError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import bodies, call_headers, headers, java_json
from sparrowmq.protocol.bodies import stats as stats_bodies
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

SERVER_SIDE = b"brokerName=broker-a\nuseServerSideResetOffset=true\n"
RESET = int(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
STATUS = int(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
INFO = int(RequestCode.GET_CONSUMER_RUNNING_INFO)


def flow(test: Callable[[FakeCluster, Admin], Coroutine[Any, Any, None]], brokers: int = 1) -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=brokers, queues=2) as cluster, Admin(cluster.namesrv) as admin:
            await test(cluster, admin)

    run(main())


def queue(number: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue("T", broker, number)


def test_change_of_a_group_keeps_what_is_not_given() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        kept = bodies.SubscriptionGroupConfig(
            group_name="g", consume_enable=False, retry_queue_nums=4, retry_max_times=5
        )
        table = bodies.SubscriptionGroupTable(subscription_group_table={"g": kept})
        cluster.broker.on[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = lambda conn, c: answer(
            body=table.encode()
        )
        await admin.groups.create("g", ordered=True)
        (asked,) = cluster.broker.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        config = bodies.SubscriptionGroupConfig.decode(asked.body)
        assert config.consume_message_orderly and not config.consume_enable
        assert (config.retry_queue_nums, config.retry_max_times) == (4, 5)

    flow(test)


def fill(cluster: FakeCluster) -> None:
    """Group g has consumed 3 of 10 messages in queue 0, and 8 of 8 in queue 1."""
    for number, count, offset in ((0, 10, 3), (1, 8, 8)):
        for _ in range(count):
            cluster.broker.store("T", number, b"x")
        cluster.broker.offsets["g", "T", number] = offset


@pytest.mark.proves("client:F-02")
def test_group_is_created_on_every_master_with_its_settings() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        await admin.groups.create("g", retries=3, broadcast=False, ordered=True)
        for broker in cluster.brokers.values():
            (asked,) = broker.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
            config = bodies.SubscriptionGroupConfig.decode(asked.body)
            assert (config.group_name, config.retry_max_times) == ("g", 3)
            assert (config.consume_enable, config.consume_broadcast_enable) == (True, False)
            assert config.consume_message_orderly
        with pytest.raises(InvalidNameError):
            await admin.groups.create("a b")
        with pytest.raises(SettingsError, check=about(setting="retries", value=-1, limit=0)):
            await admin.groups.create("g", retries=-1)

    flow(test, brokers=2)


def test_group_is_deleted_with_its_topics() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        await admin.groups.delete("g")
        (asked,) = cluster.broker.requests(RequestCode.DELETE_SUBSCRIPTIONGROUP)
        assert (asked.ext["groupName"], asked.ext["cleanOffset"]) == ("g", "true")
        gone = [c.ext["topic"] for c in cluster.broker.requests(RequestCode.DELETE_TOPIC_IN_BROKER)]
        assert gone == ["%RETRY%g", "%DLQ%g"]
        with pytest.raises(ClientError, check=about(what="group", value="CID_RMQ_SYS_TRANS")):
            await admin.groups.delete("CID_RMQ_SYS_TRANS")

    flow(test)


def test_settings_and_rate_of_a_group_are_shown() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.members["g"] = {}
        found = await admin.groups.config("g")
        assert {name: config.group_name for name, config in found.items()} == {"broker-a": "g"}
        assert await admin.groups.config("nobody") == {}
        stats = bodies.ConsumeStats({queue(0): bodies.OffsetWrapper(10, 4, 0, 7)}, consume_tps=2.5)
        for broker in cluster.brokers.values():
            broker.on[208] = lambda conn, c: answer(body=stats.encode())
        assert await admin.groups.rate("g") == 5.0
        place = (await admin.groups.progress("g"))[0]
        assert (place.lag, place.in_flight, place.pull_offset) == (6, 3, 7)

    flow(test, brokers=2)


def test_producers_of_a_group_are_listed() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        with pytest.raises(BrokerError, check=about(code=1, remark="no producers")):
            await admin.producers.connections("p", "T")
        body = bodies.ProducerConnection([bodies.ConnectionInfo("1.2.3.4:5", "me@1", "JAVA", 475)]).encode()
        cluster.broker.on[204] = lambda conn, c: answer(body=body)
        (one,) = await admin.producers.connections("p", "T")
        assert (one.client_id, one.address, one.language, one.version) == ("me@1", "1.2.3.4:5", "JAVA", 475)

    flow(test)


def test_running_info_of_members_is_read() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        assert await admin.groups.status("g") == []
        cluster.broker.members["g"] = {"one": None, "two": None}
        info = bodies.ConsumerRunningInfo(
            {"PROP_CLIENT_VERSION": "V5"}, queues={queue(0): bodies.ProcessQueueInfo(cached_msg_count=4)}
        )

        def tell(conn: object, command: Any) -> Any:
            header = headers.from_ext(call_headers.GetConsumerRunningInfoRequest, command.ext)
            assert (header.consumer_group, header.jstack_enable) == ("g", True)
            return answer(body=info.encode()) if header.client_id == "one" else answer(1, remark="too low")

        cluster.broker.on[INFO] = tell
        one, two = await admin.groups.status("g", stacks=True)
        assert one.info is not None
        assert (one.client_id, one.info.queues[queue(0)].cached_msg_count, one.error) == ("one", 4, None)
        assert (two.client_id, two.info) == ("two", None)
        assert "too low" in (two.error or "")
        cluster.broker.on[203] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await admin.groups.status("g")

    flow(test)


def test_hanging_members_time_out_and_32_are_queried_at_once() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.members["g"] = {f"m{number:02}": None for number in range(40)}
        asked: list[str] = []

        async def tell(conn: object, command: Any) -> Any:
            name = headers.from_ext(call_headers.GetConsumerRunningInfoRequest, command.ext).client_id
            asked.append(name)
            return answer(body=bodies.ConsumerRunningInfo().encode()) if name == "m00" else None

        cluster.broker.on[INFO] = tell
        found = await admin.groups.status("g", seconds=0.2)
        assert (len(found), len(set(asked))) == (40, 33), "one place became free"
        assert found[0].info is not None
        assert {one.error for one in found[1:]} == {
            "it did not answer, or was not asked, within the 0.2 s for 40 members"
        }

    flow(test)


def test_offsets_in_members_memory_are_combined_from_all_brokers() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        for name, broker in cluster.brokers.items():
            status = bodies.ConsumerStatusBody(clients={"one": {queue(0, name): 5}})
            broker.on[STATUS] = lambda conn, c, s=status: answer(body=s.encode())
        found = await admin.groups.member_offsets("g", "T", "one")
        assert found == {"one": {queue(0): 5, queue(0, "broker-b"): 5}}
        (asked,) = cluster.broker.requests(STATUS)
        assert (asked.ext["group"], asked.ext["topic"], asked.ext["clientAddr"]) == ("g", "T", "one")

    flow(test, brokers=2)


@pytest.mark.parametrize(
    ("to", "timestamp"),
    [
        ("first", 0),
        ("last", -1),
        (datetime(2024, 5, 1, tzinfo=UTC), 1714521600000),
        (1714521600000, 1714521600000),
    ],
)
def test_reset_is_left_to_the_broker_which_notifies_the_members(to: Any, timestamp: int) -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        for name, broker in cluster.brokers.items():
            moved = bodies.ResetOffsetBody({queue(1, name): 7, queue(0, name): 2})
            broker.on[RESET] = lambda conn, c, m=moved: answer(body=m.encode())
        found = await admin.groups.reset("g", "T", to)
        assert list(found.items()) == [
            (queue(0), 2),
            (queue(1), 7),
            (queue(0, "broker-b"), 2),
            (queue(1, "broker-b"), 7),
        ]
        (asked,) = cluster.broker.requests(RESET)
        header = headers.from_ext(call_headers.ResetOffsetRequest, asked.ext)
        assert (header.group, header.topic, header.timestamp, header.is_force) == ("g", "T", timestamp, True)
        assert (header.queue_id, header.offset) == (-1, None)
        await admin.groups.reset("g", "T", to, force=False)
        header = headers.from_ext(call_headers.ResetOffsetRequest, cluster.broker.requests(RESET)[-1].ext)
        assert (header.queue_id, header.is_force) == (-1, False), "members heed it"

    flow(test, brokers=2)


@pytest.mark.proves("client:F-06")
@pytest.mark.parametrize("refusal", [206, 3])
def test_stored_offsets_are_set_one_by_one_without_members(refusal: int) -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        cluster.broker.on[RESET] = lambda conn, c: answer(refusal, remark="no")
        time = datetime(2024, 5, 1, tzinfo=UTC)  # the scripted broker finds it in the middle: 5 and 4
        assert await admin.groups.reset("g", "T", time, force=False) == {queue(1): 4}
        assert cluster.broker.offsets == {("g", "T", 0): 3, ("g", "T", 1): 4}, "none went forward"
        assert await admin.groups.reset("g", "T", time) == {queue(0): 5, queue(1): 4}
        assert await admin.groups.reset("g", "T", "last") == {queue(0): 10, queue(1): 8}
        assert cluster.broker.offsets == {("g", "T", 0): 10, ("g", "T", 1): 8}

    flow(test)


def test_dry_run_of_a_reset_moves_nothing() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        before = dict(cluster.broker.offsets)
        time = datetime(2024, 5, 1, tzinfo=UTC)
        with pytest.raises(BrokerError, check=about(code=26)):
            await admin.groups.reset("g", "T", time, dry_run=True)
        cluster.broker.members["g"] = {}
        assert await admin.groups.reset("g", "T", time, dry_run=True) == {queue(0): 5, queue(1): 4}
        assert await admin.groups.reset("g", "T", time, force=False, dry_run=True) == {queue(1): 4}
        assert cluster.broker.offsets == before and not cluster.broker.requests(RESET)

    flow(test)


def test_broker_with_server_side_reset_is_asked_only_for_queues_that_go_back() -> None:
    """It ignores `force`: a reset of the whole topic would move queues forward, past unread messages."""

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        cluster.broker.on[26] = lambda conn, c: answer(body=SERVER_SIDE)
        cluster.broker.on[RESET] = lambda conn, c: answer()
        time = datetime(2024, 5, 1, tzinfo=UTC)  # the scripted broker finds it in the middle: 5 and 4
        assert await admin.groups.reset("g", "T", time, force=False) == {queue(1): 4}
        (asked,) = cluster.broker.requests(RESET)
        header = headers.from_ext(call_headers.ResetOffsetRequest, asked.ext)
        assert (header.queue_id, header.offset) == (1, 4)

    flow(test)


def test_refused_or_invalid_reset_is_an_error() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.on[RESET] = lambda conn, c: answer(26, remark="no such group")
        with pytest.raises(BrokerError, check=about(code=26)):
            await admin.groups.reset("g", "T", "first")
        before = datetime(1969, 5, 1, tzinfo=UTC)
        with pytest.raises(ClientError, match="'middle'"):
            await admin.groups.reset("g", "T", "middle")
        with pytest.raises(SettingsError, check=about(setting="to", value=datetime.min)):
            await admin.groups.reset("g", "T", datetime.min)
        with pytest.raises(SettingsError, check=about(setting="to", value=before)):
            await admin.groups.reset("g", "T", before)
        cluster.broker.on[26] = lambda conn, c: answer(body=SERVER_SIDE)
        with pytest.raises(BrokerError, check=about(code=26, remark="no such group")):
            await admin.groups.reset_queue("g", queue(0), 4)
        with pytest.raises(SettingsError, check=about(setting="offset", value=-1, limit=0)):
            await admin.groups.reset_queue("g", queue(0), -1)

    flow(test)


def test_one_queue_is_reset_by_the_broker_or_in_its_store() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        await admin.groups.reset_queue("g", queue(0), 6)
        assert cluster.broker.offsets["g", "T", 0] == 6, "it would have moved the other queue as well"
        assert not cluster.broker.requests(RESET)
        cluster.broker.on[26] = lambda conn, c: answer(body=SERVER_SIDE)
        cluster.broker.on[RESET] = lambda conn, c: answer(body=bodies.ResetOffsetBody().encode())
        await admin.groups.reset_queue("g", queue(0), 1)
        header = headers.from_ext(call_headers.ResetOffsetRequest, cluster.broker.requests(RESET)[-1].ext)
        assert (header.queue_id, header.offset, header.is_force) == (0, 1, True)
        assert cluster.broker.offsets["g", "T", 0] == 6, "the broker did it, or not"

    flow(test)


def test_offsets_are_cloned_except_those_of_the_retry_topic() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        cluster.broker.offsets["g", "%RETRY%g", 0] = 2
        assert await admin.groups.clone_offsets("g", "h") == {queue(0): 3, queue(1): 8}
        mine = {key: offset for key, offset in cluster.broker.offsets.items() if key[0] == "h"}
        assert mine == {("h", "T", 0): 3, ("h", "T", 1): 8}
        with pytest.raises(ClientError, check=about(what="offsets", value="nobody")):
            await admin.groups.clone_offsets("nobody", "h", "T")
        with pytest.raises(ClientError, check=about(what="target", value="g")):
            await admin.groups.clone_offsets("g", "g")

    flow(test)


def test_missing_group_cannot_be_reset() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.on[RESET] = lambda conn, c: answer(26, remark="Group nosuch does not exist")
        with pytest.raises(
            BrokerError,
            check=about(
                code=26, remark="Group nosuch does not exist; see the names with `sparrow group list`"
            ),
        ):
            await admin.groups.reset("nosuch", "T", "first")
        assert not cluster.broker.offsets

    flow(test)


def test_group_unknown_to_a_broker_is_created_for_its_new_offsets() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        store = cluster.broker.update_offset

        def update(connection: Any, command: Command) -> Any:
            if not cluster.broker.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP):
                return answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="Group h not exist!")
            return store(connection, command)

        cluster.broker.on[RequestCode.UPDATE_CONSUMER_OFFSET] = update
        assert await admin.groups.clone_offsets("g", "h") == {queue(0): 3, queue(1): 8}
        (made,) = cluster.broker.requests(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert bodies.SubscriptionGroupConfig.decode(made.body).group_name == "h"
        assert cluster.broker.offsets["h", "T", 1] == 8

    flow(test)


def test_offsets_are_not_set_for_a_group_with_members() -> None:
    """They would continue at their own offsets and overwrite the new ones."""

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        fill(cluster)
        cluster.broker.members["h"] = {"10.0.0.1@1": None}
        with pytest.raises(ClientError, check=about(what="members", value=["10.0.0.1@1"])):
            await admin.groups.clone_offsets("g", "h")
        assert not cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)

    flow(test)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_large_running_infos_are_parsed_in_a_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[int]()
    read = groups_module._running_info

    def noted(body: bytes) -> bodies.ConsumerRunningInfo:
        threads.append(threading.get_ident())
        return read(body)

    monkeypatch.setattr(groups_module, "INFO_INLINE_BYTES", limit)
    monkeypatch.setattr(groups_module, "_running_info", noted)
    with (
        LocalCluster() as cluster,
        mq.PushConsumer("told", namesrv=cluster.namesrv) as consumer,
        mq.Admin(namesrv=cluster.namesrv) as made,
    ):
        made.topics.create("Told", queues=1)
        consumer.subscribe("Told", handler=lambda message: None)
        until_sync(lambda: made.groups.connections("told"))

        async def main() -> None:
            async with Admin(cluster.namesrv) as client:
                (one,) = await client.groups.status("told")
                assert one.info is not None

        threads.clear()
        asyncio.run(main())
    assert (threads == [threading.get_ident()]) == (limit > 0)


@pytest.mark.parametrize(("rows", "apart"), [(1, False), (100, True)])
def test_offsets_of_many_queues_are_parsed_in_a_thread(
    rows: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their keys are objects, which take the slow parser a tenth of a second for some thousand queues."""
    threads = set[int]()
    read = java_json.queue_of_key

    def noted(key: str) -> MessageQueue:
        threads.add(threading.get_ident())
        return read(key)

    monkeypatch.setattr(stats_bodies, "queue_of_key", noted)
    queues = [queue(number) for number in range(rows)]
    progress = bodies.ConsumeStats(dict.fromkeys(queues, bodies.OffsetWrapper(10, 4, 0, 7))).encode()
    ends = bodies.TopicStatsTable(dict.fromkeys(queues, bodies.TopicOffset(0, 10, 0))).encode()

    async def test(cluster: FakeCluster, admin: Admin) -> None:
        cluster.broker.members["g"] = {}
        cluster.broker.on[RequestCode.GET_CONSUME_STATS] = lambda conn, c: answer(body=progress)
        cluster.broker.on[RequestCode.GET_TOPIC_STATS_INFO] = lambda conn, c: answer(body=ends)
        asks: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: admin.groups.progress("g"),
            lambda: admin.groups.rate("g"),
            lambda: admin.topics.status("T"),
        ]
        for ask in asks:
            threads.clear()
            await ask()
            assert (threads == {threading.get_ident()}) == (not apart)

    flow(test)
