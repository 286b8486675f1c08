"""Offsets of an earlier topic of the same name: readers restart at the beginning of the new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.pull.test_pull_path import bodies, fill, pull
from tests.broker.rig import Rig
from tests.support import run

from sparrowmq.broker.tables.topics import UNKNOWN_BIRTH, TopicTable
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.tables.config_file import ConfigFile

TOPIC = "TopicTest"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic(TOPIC, 1)
    fill(made, 3)
    yield made
    made.close()


def birth(rig: Rig) -> int:
    """The birth as a reader learns it that does not know it yet."""
    return int(pull(rig, birth=0).ext["birth"])


def make_again(rig: Rig) -> None:
    """Delete the topic and create it again with as many messages."""
    run(rig.topics.delete(TOPIC))
    rig.store.delete_topic(TOPIC)
    rig.topics.deleted(TOPIC)
    rig.make_topic(TOPIC, 1)
    fill(rig, 3)


def loaded(rig: Rig, role: str = "ASYNC_MASTER") -> TopicTable:
    """The table as another start of the broker reads it."""
    file = ConfigFile(rig.settings.store_path_root_dir / "config" / "topics.json")
    settings = dataclasses.replace(rig.settings, broker_role=role, broker_id=int(role == "SLAVE"))
    return TopicTable(settings, rig.store, file, rig.clock)


def test_only_readers_that_ask_are_told_the_birth(rig: Rig) -> None:
    assert "birth" not in pull(rig).ext
    assert "birth" not in pull(rig, birth=birth(rig)).ext


def test_offset_of_an_earlier_topic_is_moved_to_the_beginning_and_its_commit_ignored(rig: Rig) -> None:
    earlier = birth(rig)
    assert len(bodies(pull(rig, birth=earlier, queueOffset=1))) == 2
    make_again(rig)
    moved = pull(rig, birth=earlier, queueOffset=2, sysFlag=5, commitOffset=2)
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "EARLIER_TOPIC")
    assert moved.ext["nextBeginOffset"] == "0" and int(moved.ext["birth"]) == birth(rig) != earlier
    assert rig.offsets.query(TOPIC, "g", 0) is None
    assert len(bodies(pull(rig, birth=birth(rig), queueOffset=1))) == 2


def test_birth_survives_a_restart_and_a_change_of_the_topic(rig: Rig) -> None:
    born = birth(rig)
    rig.make_topic(TOPIC, 4)
    assert birth(rig) == born
    found = loaded(rig).get(TOPIC)
    assert found is not None and found.birth == born


def test_topics_have_different_births_whatever_the_clock_says(rig: Rig) -> None:
    births = [birth(rig)]
    for _ in range(3):
        rig.clock.ms -= 1000
        make_again(rig)
        births.append(birth(rig))
    assert len(set(births)) == len(births)


def test_topic_of_a_broker_that_gives_no_births_accepts_all_offsets(rig: Rig) -> None:
    earlier = birth(rig)
    rig.topics.births.clear()
    rig.topics.close(TOPIC)
    assert birth(rig) == UNKNOWN_BIRTH
    assert pull(rig, birth=earlier, queueOffset=1).code == ResponseCode.SUCCESS
    make_again(rig)
    assert pull(rig, birth=UNKNOWN_BIRTH, queueOffset=1).code == ResponseCode.PULL_OFFSET_MOVED


def test_topic_that_a_crash_lost_is_the_same_one_when_it_is_created_again(rig: Rig) -> None:
    earlier = birth(rig)
    del rig.topics.configs[TOPIC], rig.topics.births[TOPIC]
    rig.topics.close(TOPIC)
    rig.make_topic(TOPIC, 1)
    assert len(bodies(pull(rig, birth=earlier, queueOffset=1))) == 2


def test_slave_takes_the_births_of_its_master_and_judges_by_them_only_as_master(rig: Rig) -> None:
    """Its table may be late: it neither refuses offsets nor tells births."""
    slave, born = loaded(rig, "SLAVE"), birth(rig)
    version = replace(rig.topics.version, counter=99)
    assert slave.follow({TOPIC: TopicConfig(topic_name=TOPIC)}, version, {TOPIC: born + 1})
    slave.save()
    followed = slave.get(TOPIC)
    assert followed is not None and not followed.birth and not followed.is_earlier(born)
    promoted = loaded(rig).get(TOPIC)
    assert promoted is not None and promoted.birth == born + 1 and promoted.is_earlier(born)
