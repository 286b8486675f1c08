"""A whole broker over sockets: starts, serves, restarts, refuses; alone and with a name server."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import pull_ext, send_command
from tests.support import about, run, until

from sparrowmq.broker.replication.master import listen
from sparrowmq.broker.server import Broker, listen_for_slaves
from sparrowmq.core.errors import ListenError, SettingsError, SparrowError, StoreFullError, StoreLockedError
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.core.subscription import Sql, SubscriptionData
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies import (
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeStats,
    HeartbeatData,
    TopicStatsTable,
    route_from_json,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.filter import parse_expression, parse_tags
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import CreateTopicRequest, to_ext
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.server import Server


def settings(root: Path, **changes: Any) -> BrokerSettings:
    small: dict[str, Any] = {"listen_port": 0, "max_hash_slot_num": 1000, "max_index_num": 5000}
    return BrokerSettings(store_path_root_dir=root, **small | changes)


class Caller:
    """A client of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = RemotingClient()

    async def __call__(self, command: Command, *, to: str | None = None) -> Command:
        return await self.client.call(to or self.broker.address, command, 5.0)

    async def create(self, topic: str, queues: int = 2) -> Command:
        request = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        return await self(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=to_ext(request)))


@asynccontextmanager
async def serving(root: Path, **changes: Any) -> AsyncIterator[Caller]:
    broker = Broker(settings(root, **changes))
    await broker.start()
    caller = Caller(broker)
    await caller(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}'))
    try:
        yield caller
    finally:
        await caller.client.close()
        await broker.close()


def ask(code: RequestCode, **ext: Any) -> Command:
    return Command(code, ext={name: str(value) for name, value in ext.items()})


def test_sent_messages_are_available_after_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path) as call:
            assert (await call.create("TopicTest")).code == ResponseCode.SUCCESS
            for n in range(10):
                reply = await call(send_command(b"%d" % n, queue_id=n % 2))
                assert reply.code == ResponseCode.SUCCESS
            update = ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="g",
                topic="TopicTest",
                queueId=0,
                commitOffset=3,
            )
            assert (await call(update)).code == ResponseCode.SUCCESS

    async def second() -> None:
        async with serving(tmp_path) as call:
            pulled = await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext())))
            assert [record.body for record in decode_records(pulled.body)] == [b"0", b"2", b"4", b"6", b"8"]
            query = ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="TopicTest", queueId=0)
            assert (await call(query)).ext["offset"] == "3"
            reply = await call(send_command(b"10"))
            assert reply.ext["queueOffset"] == "5"

    run(first())
    run(second())


def test_client_with_an_omitted_heartbeat_is_asked_for_its_subscriptions(tmp_path: Path) -> None:
    def subscribed(version: int) -> tuple[SubscriptionData, ...]:
        return (parse_tags("TopicTest", "*", version),)

    def running_info(_address: str, command: Command) -> Command:
        assert command.ext["consumerGroup"] == "g"
        body = ConsumerRunningInfo(subscriptions=subscribed(7)).encode()
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, body=body)

    async def scenario() -> None:
        async with serving(tmp_path) as call:
            call.client = RemotingClient(on_request={RequestCode.GET_CONSUMER_RUNNING_INFO: running_info})
            await call.create("TopicTest")
            await call(send_command(b"x"))
            heartbeat = HeartbeatData("c1", consumers=(ConsumerData("g", subscriptions=subscribed(5)),))
            await call(Command(RequestCode.HEART_BEAT, body=heartbeat.encode()))
            newer = Command(
                RequestCode.PULL_MESSAGE, ext=dict(pull_ext(consumerGroup="g", sysFlag=0, subVersion=7))
            )
            assert (await call(newer)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST

            async def served() -> bool:
                return (await call(newer)).code == ResponseCode.SUCCESS

            await until(served)

    run(scenario())


@pytest.mark.proves("broker:3.4", "broker:3.7", "broker:5.5")
def test_offsets_of_queues_and_groups_are_returned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            place = {"topic": "TopicTest", "queueId": 0}
            group = {"consumerGroup": "g", **place}
            empty = await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, **group))
            assert (empty.code, empty.ext["offset"]) == (ResponseCode.SUCCESS, "0")
            assert (await call(ask(RequestCode.GET_MAX_OFFSET, **place))).ext["offset"] == "0"
            earliest = await call(ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **place))
            assert earliest.ext["timestamp"] == "-1"
            await call(send_command())
            young = await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, **group))
            assert (young.code, young.ext["offset"]) == (ResponseCode.SUCCESS, "0")
            strict = await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false", **group))
            assert strict.code == ResponseCode.QUERY_NOT_FOUND
            assert (await call(ask(RequestCode.GET_MAX_OFFSET, **place))).ext["offset"] == "1"
            assert (await call(ask(RequestCode.GET_MIN_OFFSET, **place))).ext["offset"] == "0"
            stored = await call(ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **place))
            before = int(stored.ext["timestamp"])
            for moment, wanted in ((before, "0"), (before + 1, "1"), (0, "0")):
                found = await call(ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=moment, **place))
                assert found.ext["offset"] == wanted
            wrong = ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=1, boundaryType="MIDDLE", **place)
            assert (await call(wrong)).code == ResponseCode.INVALID_PARAMETER

    run(scenario())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"topic": "no good"}, "no good"),
        ({"topic": "TBW102"}, "system topic"),
        ({"readQueueNums": "-1"}, "queues"),
        ({"perm": "9"}, "perm"),
    ],
)
def test_invalid_topic_is_not_created(tmp_path: Path, change: dict[str, str], word: str) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            request = CreateTopicRequest(
                topic="Good",
                default_topic="TBW102",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=6,
                topic_filter_type="SINGLE_TAG",
            )
            ext = to_ext(request) | change
            reply = await call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
            assert reply.code == ResponseCode.INVALID_PARAMETER
            assert word in (reply.remark or "")

    run(scenario())


def test_deleting_a_topic_deletes_its_messages_and_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            await call(send_command())
            reply = await call(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="TopicTest"))
            assert reply.code == ResponseCode.SUCCESS
            gone = await call(ask(RequestCode.GET_TOPIC_STATS_INFO, topic="TopicTest"))
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
            await call.create("TopicTest")
            table = TopicStatsTable.decode(
                (await call(ask(RequestCode.GET_TOPIC_STATS_INFO, topic="TopicTest"))).body
            )
            assert {offset.max_offset for offset in table.offset_table.values()} == {0}
            refused = await call(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102"))
            assert refused.code == ResponseCode.INVALID_PARAMETER

    run(scenario())


def test_messages_sent_after_a_deletion_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing gets into the topic while its deletion waits for the disk; it would be deleted with the
    queues."""
    go_on, save = threading.Event(), ConfigFile.save
    go_on.set()

    def held(file: ConfigFile, value: dict[str, Any]) -> None:
        assert go_on.wait(20)
        save(file, value)

    monkeypatch.setattr(ConfigFile, "save", held)

    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("T", 1)
            for _ in range(3):
                assert (await call(send_command(b"old", topic="T"))).code == ResponseCode.SUCCESS
            go_on.clear()
            deletion = asyncio.create_task(call(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")))
            await until(lambda: call.broker.parts.topics.is_going("T"))
            assert (await call(send_command(b"lost", topic="T"))).code == ResponseCode.TOPIC_NOT_EXIST
            refused = await call.create("T", 1)
            assert "is being deleted" in (refused.remark or "") and not deletion.done()
            go_on.set()
            assert (await deletion).code == ResponseCode.SUCCESS
            sent = await call(send_command(b"new", topic="T"))
            assert (sent.code, sent.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
            found = await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext(topic="T"))))
            assert [record.body for record in decode_records(found.body)] == [b"new"]

    run(main())


@pytest.mark.proves("broker:16.3")
def test_consume_stats_show_the_lag_of_a_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest", 1)
            for _ in range(5):
                await call(send_command())
            commit = ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="g",
                topic="TopicTest",
                queueId=0,
                commitOffset=2,
            )
            await call(commit)
            reply = await call(ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g"))
            (entry,) = ConsumeStats.decode(reply.body).offset_table.values()
            assert (entry.broker_offset, entry.consumer_offset) == (5, 2)
            assert entry.last_timestamp > 0

    run(scenario())


def test_consume_stats_of_named_topics_are_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            for topic in ("One", "Two", "Three"):
                await call.create(topic, 1)
            stats = ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topicList="One;Three")
            table = ConsumeStats.decode((await call(stats)).body).offset_table
            assert {queue.topic for queue in table} == {"One", "Three"}

    run(scenario())


@pytest.mark.parametrize("field", ["cleanOffset", "removeOffset"])
def test_deleting_a_group_deletes_its_offsets_on_request(tmp_path: Path, field: str) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest", 1)
            for _ in range(2):
                await call(send_command())
            place = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0}
            await call(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=2))
            await call(ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g"))
            kept = await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, **place))
            assert kept.ext["offset"] == "2"
            await call(ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", **{field: "true"}))
            strict = ask(RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false", **place)
            assert (await call(strict)).code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


def test_offsets_of_a_retry_topic_are_deleted_with_it(tmp_path: Path) -> None:
    """If they were kept, a recreated topic's messages before them would be skipped."""

    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("%RETRY%g", 1)
            place = {"consumerGroup": "g", "topic": "%RETRY%g", "queueId": 0}
            call.broker.parts.offsets.commit("%RETRY%g", "g", 0, 2)
            assert (await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, **place))).ext["offset"] == "2"
            await call(ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g"))
            gone = await call(ask(RequestCode.QUERY_CONSUMER_OFFSET, **place))
            assert gone.code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())


def test_unknown_codes_and_garbage_do_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            unknown = await call(Command(9999))
            assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            reader, writer = await asyncio.open_connection("127.0.0.1", call.broker.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            await writer.wait_closed()
            bad = Command(RequestCode.HEART_BEAT, body=b"{not json")
            assert (await call(bad)).code == ResponseCode.SYSTEM_ERROR
            assert (await call(send_command(topic="Made"))).code == ResponseCode.SUCCESS

    run(scenario())


def test_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as call:
            second = Broker(settings(tmp_path))
            with pytest.raises(StoreLockedError) as caught:
                await second.start()
            assert str(tmp_path) in str(caught.value)
            assert (await call(send_command(topic="Still"))).code == ResponseCode.SUCCESS

    run(scenario())


def test_used_port_is_reported_and_the_directory_is_released(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "one") as call:
            port = call.broker.port
            other = Broker(BrokerSettings(store_path_root_dir=tmp_path / "two", listen_port=port))
            with pytest.raises(SparrowError) as caught:
                await other.start()
            assert str(port) in str(caught.value)
            async with serving(tmp_path / "two") as again:
                assert again.broker.port != port

    run(scenario())


def test_broker_address_may_be_a_host_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, broker_ip1="localhost", bind_address="localhost") as call:
            assert call.broker.address == f"localhost:{call.broker.port}"
            answer = await call(send_command())
            assert answer.code == ResponseCode.SUCCESS
            assert answer.ext["msgId"].startswith(f"7F000001{call.broker.port:08X}")

    run(scenario())


def test_unresolvable_host_name_is_reported(tmp_path: Path) -> None:
    broker = Broker(settings(tmp_path, broker_ip1="no-such-host.invalid"))
    with pytest.raises(SettingsError, check=about(setting="brokerIP1", value="no-such-host.invalid")):
        run(broker.start())
    assert broker.port == 0


def test_topics_are_registered_at_once_and_unregistered_with_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        names = NameServer(port=0)
        await names.start()
        try:
            async with serving(tmp_path, namesrv_addr=names.address) as call:
                await call.create("TopicTest", 3)
                route = ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicTest")
                reply = await call(route, to=names.address)
                found = route_from_json(reply.body)
                assert [q.write_queue_nums for q in found.queues] == [3]
                assert found.brokers[0].master == call.broker.address
                template = await call(
                    ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102"), to=names.address
                )
                assert route_from_json(template.body).queues[0].perm == 7
                await call(send_command(topic="Auto"))

                async def routed() -> bool:
                    auto = ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Auto")
                    return (await call(auto, to=names.address)).code == ResponseCode.SUCCESS

                await until(routed)
            client = RemotingClient()
            gone = await client.call(
                names.address, ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicTest"), 5.0
            )
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
            await client.close()
        finally:
            await names.close()

    run(scenario())


def test_missing_name_server_is_reported_once_and_the_broker_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, namesrv_addr="127.0.0.1:1") as call:
            assert (await call(send_command(topic="Alone"))).code == ResponseCode.SUCCESS

    with caplog.at_level("WARNING", logger="sparrowmq.broker"):
        run(scenario())
    told = [record for record in caplog.records if "127.0.0.1:1" in record.getMessage()]
    assert len(told) == 1


def test_simultaneously_created_topics_and_groups_share_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: dict[str, int] = {}
    save = ConfigFile.save

    def counted(file: ConfigFile, value: dict[str, Any]) -> None:
        saves[file.path.name] = saves.get(file.path.name, 0) + 1
        save(file, value)

    async def scenario() -> None:
        async with serving(tmp_path) as call:
            await call.create("First")
            monkeypatch.setattr(ConfigFile, "save", counted)
            answers = await asyncio.gather(*(call.create(f"Topic{number}") for number in range(200)))
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            table = ConfigFile(tmp_path / "config" / "topics.json").load()["topicConfigTable"]
            assert {f"Topic{number}" for number in range(200)} <= table.keys()
            groups = tuple(ConsumerData(f"group{number}") for number in range(200))
            beat = HeartbeatData(client_id="c", consumers=groups)
            await call(Command(RequestCode.HEART_BEAT, body=beat.encode()))

    run(scenario())
    assert saves["topics.json"] < 20 and saves["subscriptionGroup.json"] < 5
    stored = ConfigFile(tmp_path / "config" / "subscriptionGroup.json").load()["subscriptionGroupTable"]
    assert {f"group{number}" for number in range(200)} <= stored.keys(), "a clean stop loses none"


def test_tables_that_cannot_be_saved_at_the_end_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: ConfigFile, value: dict[str, Any]) -> None:
        raise StoreFullError(f"no room for {file.path.name}")

    async def scenario() -> None:
        async with serving(tmp_path) as call:
            monkeypatch.setattr(ConfigFile, "save", full)
            beat = HeartbeatData(client_id="c", consumers=(ConsumerData("new"),))
            await call(Command(RequestCode.HEART_BEAT, body=beat.encode()))

    with caplog.at_level("ERROR", "sparrowmq.broker"):
        run(scenario())
    lost = [text for text in caplog.messages if "recent table changes were not saved" in text]
    assert [text.split()[-1] for text in lost] == ["topics.json", "subscriptionGroup.json"]


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(settings(tmp_path))
        await broker.start()
        await broker.close()
        await broker.close()
        assert "closed" in repr(broker)

    run(scenario())


def test_consumer_offsets_are_written_outside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    save = ConfigFile.save

    def noted(file: ConfigFile, value: dict[str, Any]) -> None:
        if file.path.name == "consumerOffset.json":
            threads.append(threading.current_thread())
        save(file, value)

    monkeypatch.setattr(ConfigFile, "save", noted)

    async def scenario() -> None:
        async with serving(tmp_path, flush_consumer_offset_interval=10) as call:
            await call.create("TopicTest")
            for offset in (1, 2):
                await call(send_command())
                await call(
                    ask(
                        RequestCode.UPDATE_CONSUMER_OFFSET,
                        consumerGroup="g",
                        topic="TopicTest",
                        queueId=0,
                        commitOffset=offset,
                    )
                )
                await until(lambda offset=offset: len(threads) >= offset)
            assert threading.current_thread() not in threads

    run(scenario())


def test_tables_are_written_outside_the_loop_also_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, threading.Thread]] = []
    save, close = ConfigFile.save, MessageStore.close

    def noted(file: ConfigFile, value: dict[str, Any]) -> None:
        written.append((file.path.name, threading.current_thread()))
        save(file, value)

    def closed(store: MessageStore) -> None:
        written.append(("the store", threading.current_thread()))
        close(store)

    async def scenario() -> None:
        async with serving(tmp_path) as call:
            monkeypatch.setattr(ConfigFile, "save", noted)
            monkeypatch.setattr(MessageStore, "close", closed)
            await call.create("TopicTest")
            await call(send_command())
            commit = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0, "commitOffset": 1}
            await call(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit))
            filtered = (parse_expression("TopicTest", Sql("a > 1"), 1),)
            beat = HeartbeatData("c", consumers=(ConsumerData("new", subscriptions=filtered),))
            await call(Command(RequestCode.HEART_BEAT, body=beat.encode()))

    run(scenario())
    names = {name for name, _ in written}
    assert names >= {
        "consumerFilter.json",
        "consumerOffset.json",
        "subscriptionGroup.json",
        "topics.json",
        "the store",
    }
    assert threading.current_thread() not in {thread for _, thread in written}


def test_cancelled_start_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        handler = CommandHandler({RequestCode.REGISTER_BROKER: lambda conn, c: asyncio.sleep(3600)})
        silent = Server(handler)
        await silent.start()
        broker = Broker(settings(tmp_path, namesrv_addr=silent.address))
        starting = asyncio.create_task(broker.start())
        await until(lambda: silent.connections)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert broker.port == 0
        await handler.close(0.1)
        await silent.close()
        async with serving(tmp_path):
            pass

    run(scenario())


def test_offsets_are_written_after_the_retries_they_skip(tmp_path: Path) -> None:
    """The log is flushed only every ten seconds; a power failure in between must not lose any message."""

    async def main() -> None:
        changes = {"flush_interval_commit_log": 10_000, "flush_consumer_offset_interval": 1000}
        async with serving(tmp_path, **changes) as call:
            broker, store = call.broker, call.broker.parts.store
            assert store is not None
            await call.create("TopicTest")
            await call(send_command(b"fails"))
            back = ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="g", delayLevel=0)
            assert (await call(back)).code == ResponseCode.SUCCESS
            commit = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0, "commitOffset": 1}
            assert (
                await call(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit))
            ).code == ResponseCode.SUCCESS
            await broker.parts.offset_saving.save()
            assert broker.parts.offsets.unsaved() is None
            assert store.flushed_position == store.position > 0

    run(main())


def test_master_uses_another_replication_port_when_the_usual_one_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = listen("127.0.0.1", 0)
    number = taken.getsockname()[1]
    try:
        with caplog.at_level(logging.WARNING):
            found = listen_for_slaves(BrokerSettings(listen_port=number - 1), number - 1)
        assert found.getsockname()[1] not in (0, number)
        found.close()
        assert f"port {number} is in use, so slaves connect to port " in caplog.text
        with pytest.raises(ListenError, check=about(address=f"127.0.0.1:{number}", value=errno.EADDRINUSE)):
            listen_for_slaves(BrokerSettings(ha_listen_port=number), 1)
    finally:
        taken.close()
