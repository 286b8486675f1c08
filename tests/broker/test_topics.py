"""The topic table: system topics, auto-creation, persistence in RocketMQ's file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig
from tests.support import run

from sparrowmq.broker.topics import TopicTable, system_topics
from sparrowmq.core.errors import StoreCorruptError, StoreFullError
from sparrowmq.core.settings import BrokerSettings
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.store import disk
from sparrowmq.store.config_file import ConfigFile


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    yield made
    made.close()


def reloaded(rig: Rig) -> TopicTable:
    file = ConfigFile(rig.settings.store_path_root_dir / "config" / "topics.json")
    return TopicTable(rig.settings, rig.store, file, rig.clock)


def test_every_broker_has_the_system_topics_with_their_queues(rig: Rig) -> None:
    have = {name: (c.write_queue_nums, c.perm) for name, c in rig.topics.configs.items()}
    assert have == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }
    assert all(rig.topics.is_reserved(name) for name in have)


@pytest.mark.proves("broker:6.1", "client:B-110")
def test_a_topic_for_traces_is_there_when_asked_for() -> None:
    def names(**values: Any) -> set[str]:
        return {config.topic_name: config for config in system_topics(BrokerSettings(**values))}.keys()

    assert names(trace_topic_enable=True) - names() == {"RMQ_SYS_TRACE_TOPIC"}
    own = names(trace_topic_enable=True, msg_trace_topic_name="Traces")
    assert own - names() == {"Traces"}


def test_topics_and_version_survive_a_restart(rig: Rig) -> None:
    rig.clock.ms += 5
    rig.put_topic(TopicConfig(topic_name="A", read_queue_nums=3, write_queue_nums=2, order=True))
    again = reloaded(rig)
    assert again.configs["A"] == rig.topics.configs["A"]
    assert again.version == rig.topics.version
    assert again.version.counter == 1 and again.version.timestamp == rig.clock.ms


def test_the_file_has_the_members_rocketmq_reads(rig: Rig) -> None:
    rig.make_topic("A", 2)
    text = (rig.settings.store_path_root_dir / "config" / "topics.json").read_text()
    stored = json.loads(text)["topicConfigTable"]["A"]
    assert stored == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "A",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }


def test_an_unchanged_topic_does_not_raise_the_version(rig: Rig) -> None:
    config = TopicConfig(topic_name="A")
    assert rig.topics.put_soon(config)
    assert not rig.topics.put_soon(config)
    assert not rig.topics.ensure_soon("A", 99)
    assert rig.topics.version.counter == 1


@pytest.mark.proves("client:C-13")
def test_more_queues_are_seen_at_once(rig: Rig) -> None:
    rig.make_topic("A", 2)
    before = rig.topics.get("A")
    assert before is not None and len(before.queues) == 2
    rig.put_topic(TopicConfig(topic_name="A", read_queue_nums=5, write_queue_nums=2))
    after = rig.topics.get("A")
    assert after is not None and len(after.queues) == 5
    assert after.queues[0] is before.queues[0]


@pytest.mark.parametrize(("wanted", "made"), [(4, 4), (100, 8), (0, 1), (-3, 1)])
def test_auto_creation_takes_no_more_queues_than_the_template(rig: Rig, wanted: int, made: int) -> None:
    config = rig.topics.create_from_template("New", "TBW102", wanted)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)


@pytest.mark.parametrize("template", ["Unknown", "SELF_TEST_TOPIC"])
def test_only_a_template_that_inherits_creates(rig: Rig, template: str) -> None:
    assert rig.topics.create_from_template("New", template, 4) is None
    assert rig.topics.get("New") is None


def test_deleting_forgets_once(rig: Rig) -> None:
    rig.make_topic("A", 1)
    assert run(rig.topics.delete("A"))
    assert not run(rig.topics.delete("A"))
    assert rig.topics.get("A") is None
    assert "A" not in reloaded(rig).configs


def test_a_topic_that_goes_cannot_be_made_before_it_is_gone(rig: Rig) -> None:
    """Its queues are deleted once the table is saved, and with them what a new topic had got by then."""
    rig.make_topic("A", 1)

    async def main() -> bool:
        going = asyncio.create_task(rig.topics.delete("A"))
        await asyncio.sleep(0)
        assert rig.topics.get("A") is None and rig.topics.is_going("A")
        assert rig.topics.create_from_template("A", "TBW102", 4) is None
        assert not rig.topics.put_soon(TopicConfig(topic_name="A"))
        assert not rig.topics.ensure_soon("A", 1)
        assert not await rig.topics.delete("A"), "it goes already"
        return await going

    assert run(main())
    assert "A" not in rig.topics.configs and "A" not in reloaded(rig).configs
    assert rig.topics.ensure_soon("A", 1)


def test_a_topic_that_cannot_be_deleted_from_the_table_stays(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.make_topic("A", 1)
    config = rig.topics.configs["A"]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreFullError, match=r"topics\.json: No space left on device; free space"):
            run(rig.topics.delete("A"))
    opened = rig.topics.get("A")
    assert opened is not None and opened.config == config and not rig.topics.is_going("A")
    rig.topics.save()
    assert reloaded(rig).configs == rig.topics.configs


def test_a_topic_is_special_until_it_is_saved(rig: Rig) -> None:
    rig.topics.create_from_template("New", "TBW102", 4)
    rig.topics.ensure_soon("%RETRY%g", 1)
    opened = rig.topics.get("New")
    assert opened is not None and opened.special and rig.topics.is_unsaved("New")
    assert "New" not in reloaded(rig).configs
    run(rig.topics.kept(["New"]))
    assert rig.topics.get("New") is opened and not opened.special and not rig.topics.is_unsaved("New")
    again = reloaded(rig)
    assert again.configs["New"] == opened.config and "%RETRY%g" in again.configs
    assert again.version == rig.topics.version
    retry = rig.topics.get("%RETRY%g")
    assert retry is not None and retry.special


def test_a_save_takes_along_all_that_waited(rig: Rig) -> None:
    rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    assert not rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    rig.topics.ensure_soon("B", 1, sys_flag=2)
    rig.topics.save()
    again = reloaded(rig).configs
    assert again["A"].read_queue_nums == 3 and again["B"].topic_sys_flag == 2
    assert not rig.topics.is_unsaved("A") and not rig.topics.is_unsaved("B")


def test_what_waited_for_a_save_that_fails_is_as_on_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TopicConfig(topic_name="A", read_queue_nums=1, write_queue_nums=1)
    rig.put_topic(before)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def two(first: list[str], second: list[str]) -> list[BaseException | None]:
        waits = (rig.topics.kept(first), rig.topics.kept(second))
        return await asyncio.gather(*waits, return_exceptions=True)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=5))
        rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=6))
        rig.topics.put_soon(TopicConfig(topic_name="B"))
        rig.topics.ensure_soon("%RETRY%g", 1)
        errors = run(two(["A"], ["A", "B"]))
        assert all(isinstance(error, StoreFullError) for error in errors)
        assert rig.topics.configs["A"] == before and "B" not in rig.topics.configs
        assert not rig.topics.is_unsaved("A")
        assert "%RETRY%g" in rig.topics.configs, "nobody waited for it: it is saved later"
    rig.topics.save()
    assert reloaded(rig).configs == rig.topics.configs


@pytest.mark.parametrize("text", ['{"topicConfigTable":5}', '{"topicConfigTable":{"A":{"perm":"x"}}}'])
def test_a_file_that_is_no_table_of_topics_is_named(rig: Rig, text: str) -> None:
    path = rig.settings.store_path_root_dir / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(StoreCorruptError) as caught:
        reloaded(rig)
    assert str(caught.value).startswith(f"{path} is not a table of topics (")
    assert str(caught.value).endswith("; restore or remove it")
