"""Administration requests about a whole broker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.broker.rig import pull_ext, send_command
from tests.broker.test_server import Caller, ask, serving
from tests.support import run, until

from sparrowmq.core.settings.live import LIVE
from sparrowmq.core.settings.servers import BrokerSettings, table
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol import java_json
from sparrowmq.protocol.bodies import (
    BrokerStatsData,
    ConsumeStats,
    TopicConfig,
    TopicConfigList,
    TopicStatsTable,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.message_store import MessageStore

CLEANING = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "delete_commit_log_files_interval": 0,
    "clean_resource_interval": 10,
    "disk_max_used_space_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
}


def update(text: str) -> Command:
    return Command(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


async def settings_of(call: Caller) -> dict[str, str]:
    reply = await call(ask(RequestCode.GET_BROKER_CONFIG))
    assert reply.code == ResponseCode.SUCCESS
    return parse_properties(reply.body.decode())


def store_of(call: Caller) -> MessageStore:
    store = call.broker.parts.store
    assert store is not None
    return store


def test_dynamic_settings_are_in_the_table() -> None:
    assert set(table(BrokerSettings)) >= LIVE


@pytest.mark.proves("broker:15")
def test_settings_are_shown_and_changed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            found = await settings_of(call)
            assert (found["fileReservedTime"], found["messageIndexEnable"]) == ("72", "true")
            assert found["storePathRootDir"] == str(tmp_path)
            before = json.loads((await call(ask(RequestCode.GET_BROKER_CONFIG))).ext["version"])
            reply = await call(update("fileReservedTime=5\nmessageIndexEnable=false\nbrokerPermission=2\n"))
            assert reply.code == ResponseCode.SUCCESS
            found = await settings_of(call)
            assert (found["fileReservedTime"], found["brokerPermission"]) == ("5", "2")
            after = json.loads((await call(ask(RequestCode.GET_BROKER_CONFIG))).ext["version"])
            assert after["counter"] == before["counter"] + 1
            assert not store_of(call).index.enabled
            assert call.broker.parts.upkeep.cleaner.settings.file_reserved_time == 5
            await call.create("TopicTest")
            pulled = await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext())))
            assert pulled.code == ResponseCode.NO_PERMISSION

    run(main())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("listenPort=1\nfileReservedTime=5", "listenPort: cannot change while the broker runs"),
        ("fileReservedTime=x", "fileReservedTime=x: must be a whole number"),
        ("fileReservedTime=-1", "must be a whole number from 0"),
        ("deleteWhen=25", "must be hours from 00 to 23"),
        ("fileReservedTme=5", "did you mean fileReservedTime?"),
        ("a=\\uxyzw", "four hexadecimal digits"),
        ("\udcff".encode("utf-8", "surrogatepass").decode("latin-1") + "=1", "there is no such setting"),
    ],
)
def test_all_changes_are_applied_or_none(text: str, word: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            before = await settings_of(call)
            reply = await call(update(text))
            assert reply.code == ResponseCode.INVALID_PARAMETER
            assert word in (reply.remark or "")
            assert await settings_of(call) == before

    run(main())


def test_change_without_effect_is_accepted(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            for text in ("", "fileReservedTime=72", "haHousekeepingInterval=20000", "brokerName=broker-a"):
                assert (await call(update(text))).code == ResponseCode.SUCCESS

    run(main())


@pytest.mark.proves("broker:16.2")
def test_statistics_of_a_topic_are_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            await call(send_command())
            request = ask(
                RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="TopicTest"
            )
            assert BrokerStatsData.decode((await call(request)).body).stats_day.sum == 0
            missing = ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="No")
            reply = await call(missing)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "The stats <TOPIC_PUT_NUMS> <No> not exist"

    run(main())


def test_all_offsets_have_the_form_of_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            place = {"topic": "TopicTest", "queueId": 1, "consumerGroup": "g", "commitOffset": 0}
            await call(ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place))
            reply = await call(ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
            assert b"{1:0}" in reply.body
            assert java_json.loads(reply.body)["offsetTable"] == {"TopicTest@g": {"1": 0}}

    run(main())


async def fill(call: Caller, topic: str, count: int) -> None:
    await call.create(topic, 1)
    for number in range(count):
        await call(send_command(b"%d" % number * 50, topic=topic))


def age(call: Caller) -> None:
    """Make the log's files appear one year old."""
    for path in (call.broker.settings.store_path_root_dir / "commitlog").iterdir():
        os.utime(path, (1, 1))


@pytest.mark.proves("broker:2.7", "broker:5.4")
def test_operator_deletes_old_files_and_readers_are_moved(tmp_path: Path) -> None:
    async def main() -> None:
        quiet = "00" if _hour() > 2 else "12"
        async with serving(tmp_path, delete_when=quiet, **CLEANING) as call:
            await fill(call, "TopicTest", 60)
            store = store_of(call)
            await until(lambda: store.flushed_position == store.position)
            age(call)
            assert (await call(ask(RequestCode.DELETE_EXPIRED_COMMITLOG))).code == ResponseCode.SUCCESS
            await until(lambda: store.min_position > 0)
            queue = store.queue("TopicTest", 0)
            await until(lambda: queue.min_offset > 0)
            place = {"topic": "TopicTest", "queueId": 0}
            low = int((await call(ask(RequestCode.GET_MIN_OFFSET, **place))).ext["offset"])
            pulled = await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext(queueOffset=0))))
            assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
            assert int(pulled.ext["nextBeginOffset"]) == int(pulled.ext["minOffset"]) >= low
            moved = await call(
                Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext(queueOffset=pulled.ext["minOffset"])))
            )
            assert decode_records(moved.body)[-1].queue_offset == 59

    run(main())


def _hour() -> int:
    import time

    return time.localtime().tm_hour


@pytest.mark.proves("broker:2.7")
def test_queues_with_only_deleted_messages_are_cleaned(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(
            tmp_path, delete_when=f"{_hour():02d};{(_hour() + 1) % 24:02d}", **CLEANING
        ) as call:
            await fill(call, "Old", 5)
            await fill(call, "TopicTest", 60)
            store = store_of(call)
            commit = {"queueId": 0, "consumerGroup": "g", "commitOffset": 5}
            for topic in ("Old", "TopicTest"):
                await call(ask(RequestCode.UPDATE_CONSUMER_OFFSET, topic=topic, **commit))
            await until(lambda: store.flushed_position == store.position)
            age(call)
            await until(lambda: store.queue("Old", 0).min_offset == 5)
            assert (await call(ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))).code == ResponseCode.SUCCESS
            assert not (tmp_path / "consumequeue" / "Old").exists()
            assert (tmp_path / "consumequeue" / "TopicTest" / "0").exists()
            offsets = call.broker.parts.offsets
            assert (offsets.query("Old", "g", 0), offsets.query("TopicTest", "g", 0)) == (None, 5)
            assert (await call(send_command(b"again", topic="Old"))).ext["queueOffset"] == "0"
            assert store.queue("Old", 0).max_offset == 1

    run(main())


@pytest.mark.proves("broker:2.7", "broker:18")
def test_queues_of_deleted_topics_are_cleaned(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await fill(call, "TopicTest", 3)
            await fill(call, "Gone", 3)
            await call.broker.parts.topics.delete(
                "Gone"
            )  # as after a rebuild from the log of a topic deleted before
            assert (tmp_path / "consumequeue" / "Gone").exists()
            assert (await call(ask(RequestCode.CLEAN_UNUSED_TOPIC))).code == ResponseCode.SUCCESS
            assert not (tmp_path / "consumequeue" / "Gone").exists()
            assert store_of(call).queue("TopicTest", 0).max_offset == 3

    run(main())


@pytest.mark.proves("client:F-02")
def test_several_topics_are_created_together_or_not_at_all(tmp_path: Path) -> None:
    def of(*names: str) -> Command:
        configs = [TopicConfig(topic_name=name, read_queue_nums=3, write_queue_nums=3) for name in names]
        body = TopicConfigList(topic_config_list=configs).encode()
        return Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    async def main() -> None:
        async with serving(tmp_path) as call:
            assert (await call(of("One", "Two"))).code == ResponseCode.SUCCESS
            topics = call.broker.parts.topics.configs
            assert topics["One"].write_queue_nums == topics["Two"].read_queue_nums == 3
            assert (await call(of("One", "Two"))).code == ResponseCode.SUCCESS
            reply = await call(of("Three", "TBW102"))
            assert (reply.code, "Three" in call.broker.parts.topics.configs) == (
                ResponseCode.INVALID_PARAMETER,
                False,
            )

    run(main())


@pytest.mark.proves("broker:16.3")
def test_progress_of_topics_and_groups_has_rates(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await call.create("TopicTest")
            await call(send_command())
            await call(Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext())))
            stats = call.broker.parts.upkeep.stats
            for _ in stats._sampling():
                pass
            topic = TopicStatsTable.decode(
                (await call(ask(RequestCode.GET_TOPIC_STATS_INFO, topic="TopicTest"))).body
            )
            assert topic.topic_put_tps == pytest.approx(0.1)
            request = ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic="TopicTest")
            assert ConsumeStats.decode((await call(request)).body).consume_tps == pytest.approx(0.1)

    run(main())
