"""The names that the calls of `Admin` had before they were in parts."""

from __future__ import annotations

from operator import attrgetter

import pytest
from tests.support import about, run

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.admin.former import FORMER
from sparrowmq.testing import LocalCluster


@pytest.mark.parametrize("kind", [aio.Admin, mq.Admin])
@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_former_name_is_the_call_of_a_part(kind: type[aio.Admin | mq.Admin], former: str, now: str) -> None:
    admin = kind("127.0.0.1:1")
    with pytest.warns(DeprecationWarning, match=f"admin.{former} is now admin.{now}") as warned:
        found = getattr(admin, former)
    assert found == attrgetter(now)(admin)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("part", ["users", "holds", "dead_letters"])
@pytest.mark.parametrize("kind", [aio.Admin, mq.Admin])
def test_part_with_a_former_name_can_be_called(kind: type[aio.Admin | mq.Admin], part: str) -> None:
    called = getattr(kind("127.0.0.1:1"), part)
    text = rf"admin.{part}\(…\) is now admin.{part}.list\(…\)"
    with pytest.warns(DeprecationWarning, match=text), pytest.raises(TypeError, match="list"):
        called(1, 2, 3)


@pytest.mark.parametrize("kind", [aio.Admin, mq.Admin])
def test_other_parts_cannot_be_called(kind: type[aio.Admin | mq.Admin]) -> None:
    admin = kind("127.0.0.1:1")
    for part in ("topics", "brokers", "producers"):
        with pytest.raises(TypeError, match="object is not callable"):
            getattr(admin, part)()


def test_former_names_work() -> None:
    async def main(namesrv: str) -> None:
        async with aio.Admin(namesrv) as admin:
            with pytest.warns(DeprecationWarning, match="topics.list"):
                assert await admin.topic_list() == ["T"]  # type: ignore[attr-defined]
            with pytest.warns(DeprecationWarning, match="list"):
                assert await admin.holds() == []  # type: ignore[operator]

    with LocalCluster() as cluster:
        cluster.create_topic("T")
        run(main(cluster.namesrv))
        with mq.Admin(cluster.namesrv) as admin, pytest.warns(DeprecationWarning, match="topics.list"):
            assert admin.topic_list() == ["T"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [aio.Admin, mq.Admin])
def test_unknown_name_is_an_attribute_error(kind: type[aio.Admin | mq.Admin]) -> None:
    with pytest.raises(AttributeError, match="'Admin' object has no attribute 'create_topics'"):
        kind("127.0.0.1:1").create_topics  # type: ignore[union-attr]  # noqa: B018


def test_former_argument_of_search_offset_works() -> None:
    with LocalCluster() as cluster, mq.Admin(cluster.namesrv) as admin:
        cluster.create_topic("T")
        queue = mq.MessageQueue("T", "broker-a", 0)
        with mq.Producer("p", name_server=cluster.namesrv) as producer:
            producer.send(mq.Message("T", b"1"), queue=queue)
            with pytest.warns(DeprecationWarning, match="is now timestamp="):
                assert admin.topics.search_offset(queue, timestamp_ms=2**53) == 1
            with pytest.warns(DeprecationWarning):
                assert producer.search_offset(queue, timestamp_ms=0) == 0
        with mq.PullConsumer(name_server=cluster.namesrv) as consumer, pytest.warns(DeprecationWarning):
            assert consumer.search_offset(queue, timestamp_ms=0) == 0
        with pytest.raises(mq.SettingsError, check=about(setting="timestamp", value=None)):
            admin.topics.search_offset(queue)
