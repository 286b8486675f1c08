"""The topic table: system topics, automatic creation, RocketMQ's file format."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig
from tests.support import about, run, steps

from sparrowmq import broker
from sparrowmq.broker.tables.topics import TopicTable, system_topics
from sparrowmq.core.errors import NoTopicError, StoreCorruptError, StoreFullError
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.store.tables.config_file import ConfigFile


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
def test_trace_topic_exists_when_enabled() -> None:
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


def test_file_has_the_members_rocketmq_reads(rig: Rig) -> None:
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


def test_unchanged_topic_does_not_raise_the_version(rig: Rig) -> None:
    config = TopicConfig(topic_name="A")
    assert rig.topics.put_soon(config)
    assert not rig.topics.put_soon(config)
    assert not rig.topics.ensure_soon("A", config.write_queue_nums)
    assert rig.topics.version.counter == 1


def test_internal_topic_is_widened_and_never_shrunk(rig: Rig) -> None:
    assert rig.topics.ensure_soon("%RETRY%g", 1, sys_flag=2)
    assert rig.topics.ensure_soon("%RETRY%g", 4) and not rig.topics.ensure_soon("%RETRY%g", 2)
    config = rig.topics.configs["%RETRY%g"]
    assert (config.read_queue_nums, config.write_queue_nums, config.topic_sys_flag) == (4, 4, 2)
    rig.put_topic(TopicConfig(topic_name="R", read_queue_nums=8, write_queue_nums=2, perm=4))
    rig.topics.ensure_soon("R", 4)
    assert rig.topics.configs["R"] == TopicConfig(
        topic_name="R", read_queue_nums=8, write_queue_nums=4, perm=4
    )


def test_internal_topic_stays_as_it_is_without_room_for_more_queues(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "full")
    rig.topics.ensure_soon("%RETRY%g", 1)
    rig.topics._queues_max = rig.topics.queue_count + 2
    assert not rig.topics.ensure_soon("%RETRY%g", 4)
    assert rig.topics.ensure_soon("%RETRY%g", 3)
    rig.close()


@pytest.mark.parametrize("queue_id", [-1, 2])
def test_only_queues_of_the_topic_are_opened(rig: Rig, queue_id: int) -> None:
    rig.make_topic("A", 2)
    topic = rig.topics.get("A")
    assert topic is not None
    with pytest.raises(NoTopicError, check=about(what="queue", value=queue_id, limit=2)):
        topic.queues[queue_id]
    assert rig.store.queues("A") == []


def test_nothing_in_the_broker_opens_a_queue_but_the_table_of_topics() -> None:
    root = Path(broker.__file__).parent
    callers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"store\.queue\b", path.read_text())
    }
    assert callers == {"tables/topics.py"}


@pytest.mark.proves("client:C-13")
def test_new_topic_does_not_copy_the_table(rig: Rig) -> None:
    """The data being saved does not change with it."""
    configs, before = rig.topics.configs, rig.topics._snapshot()
    rig.topics.put_soon(TopicConfig(topic_name="T"))
    assert rig.topics.configs is configs
    assert "T" in configs and "T" not in before.configs
    run(rig.topics.delete("T"))
    assert rig.topics.configs is configs


def test_additional_queues_are_visible_at_once(rig: Rig) -> None:
    rig.make_topic("A", 2)
    before = rig.topics.get("A")
    assert before is not None and before.queue_count == 2
    rig.put_topic(TopicConfig(topic_name="A", read_queue_nums=5, write_queue_nums=2))
    after = rig.topics.get("A")
    assert after is not None and after.queue_count == 5
    assert after.queues[0] is before.queues[0]


def test_unused_queues_of_a_large_topic_cost_nothing(rig: Rig) -> None:
    rig.make_topic("A", 65_536)
    before = len(rig.store.all_queues())
    topic = rig.topics.get("A")
    assert topic is not None and topic.queue_count == 65_536
    assert len(rig.store.all_queues()) == before
    last = topic.queues[65_535]
    assert (last.queue_id, len(rig.store.all_queues())) == (65_535, before + 1)
    assert topic.queues[65_535] is last
    tracemalloc.start()
    try:
        topic.queues.first(10_000)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 500 * 10_000


@pytest.mark.parametrize(("wanted", "made"), [(4, 4), (100, 8), (0, 1), (-3, 1)])
def test_auto_creation_uses_no_more_queues_than_the_template(rig: Rig, wanted: int, made: int) -> None:
    config = rig.topics.create_from_template("New", "TBW102", wanted)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)


@pytest.mark.parametrize("template", ["Unknown", "SELF_TEST_TOPIC"])
def test_only_an_inheriting_template_creates_topics(rig: Rig, template: str) -> None:
    assert rig.topics.create_from_template("New", template, 4) is None
    assert rig.topics.get("New") is None


def test_topic_is_deleted_once(rig: Rig) -> None:
    rig.make_topic("A", 1)
    assert run(rig.topics.delete("A"))
    assert not run(rig.topics.delete("A"))
    assert rig.topics.get("A") is None
    assert "A" not in reloaded(rig).configs


def test_topic_cannot_be_recreated_before_its_deletion_ends(rig: Rig) -> None:
    """Its queues are deleted after the table is saved, and with them what a new topic had received by
    then."""
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
    assert rig.topics.is_going("A") and not rig.topics.ensure_soon("A", 1), "its queues are still there"
    assert reloaded(rig).deleting == {"A"}
    rig.topics.deleted("A")
    assert rig.topics.ensure_soon("A", 1)
    rig.topics.save()
    assert reloaded(rig).deleting == frozenset()


def test_topic_that_cannot_be_deleted_from_the_table_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_topic_is_special_until_it_is_saved(rig: Rig) -> None:
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


def test_save_includes_all_waiting_changes(rig: Rig) -> None:
    rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    assert not rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    rig.topics.ensure_soon("B", 1, sys_flag=2)
    rig.topics.save()
    again = reloaded(rig).configs
    assert again["A"].read_queue_nums == 3 and again["B"].topic_sys_flag == 2
    assert not rig.topics.is_unsaved("A") and not rig.topics.is_unsaved("B")


def test_failed_save_leaves_waiting_changes_as_on_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_error_for_an_invalid_topic_table_names_the_file(rig: Rig, text: str) -> None:
    path = rig.settings.store_path_root_dir / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(StoreCorruptError) as caught:
        reloaded(rig)
    assert str(caught.value).startswith(f"{path} is not a table of topics (")
    assert str(caught.value).endswith("; restore or remove it")


def test_saved_topics_are_not_compared_one_by_one(rig: Rig) -> None:
    """A heartbeat creates 2,000 retry topics, and other requests wait while their save is recorded."""

    def noting(count: int) -> int:
        for number in range(count):
            rig.topics.ensure_soon(f"%RETRY%g{count}x{number}", 1)
        noted: list[int] = []
        settle = rig.topics._file._settled
        rig.topics._file._settled = lambda: noted.append(steps(settle))
        rig.topics.save()
        rig.topics._file._settled = settle
        assert not rig.topics._unsaved
        return noted[0]

    few = noting(10)
    assert (noting(210) - few) / 200 < 15


def test_topic_changed_during_a_save_is_saved_with_the_next(rig: Rig) -> None:
    rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    opened = rig.topics.get("A")
    before = rig.topics._snapshot()
    rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=4))
    rig.topics.put_soon(TopicConfig(topic_name="A", read_queue_nums=3))
    rig.topics._file.on_disk = before
    rig.topics._settle()
    assert rig.topics.is_unsaved("A") and rig.topics.get("A") is not opened
    rig.topics.save()
    assert not rig.topics.is_unsaved("A")
