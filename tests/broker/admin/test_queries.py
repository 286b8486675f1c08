"""Codes 12, 33 and 321 at a whole broker."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import send_command
from tests.broker.test_server import Caller, ask, serving
from tests.support import run

from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData
from sparrowmq.protocol.bodies.queues import QueryConsumeQueueBody
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.index.index_file import IndexFile

FOREVER = 2**62


async def fill(call: Caller, count: int) -> list[str]:
    """Messages with their own key, a common key and a tag; returns their offset ids."""
    await call.create("TopicTest")
    ids = []
    for number in range(count):
        properties = f"UNIQ_KEY\x01ID{number:02d}\x02KEYS\x01k{number} all\x02TAGS\x01TagA\x02"
        reply = await call(send_command(b"%d" % number, queue_id=number % 2, properties=properties))
        ids.append(reply.ext["msgId"])
    return ids


def by_key(key: str, **changes: Any) -> Command:
    fields = {"topic": "TopicTest", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": FOREVER}
    return ask(RequestCode.QUERY_MESSAGE, key=key, **fields | changes)


def bodies(reply: Command) -> list[bytes]:
    assert reply.code == ResponseCode.SUCCESS, reply
    return [record.body for record in decode_records(reply.body)]


@pytest.mark.proves("broker:4.3", "client:B-128")
def test_messages_are_found_by_key_unique_key_and_tag(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await fill(call, 5)
            reply = await call(by_key("k3"))
            assert bodies(reply) == [b"3"]
            place = call.broker.parts.store.index.place
            assert int(reply.ext["indexLastUpdatePhyoffset"]) == place.end_offset > 0
            assert int(reply.ext["indexLastUpdateTimestamp"]) == place.end_timestamp
            assert bodies(await call(by_key("ID02", _UNIQUE_KEY_QUERY="true", indexType="U"))) == [b"2"]
            assert len(bodies(await call(by_key("TagA", indexType="T")))) == 5
            assert len(bodies(await call(by_key("all", maxNum=2)))) == 2
            for nothing in (
                by_key("k9"),
                by_key("TagA"),
                by_key("k3", topic="Other"),
                by_key("k3", endTimestamp=1),
                by_key("k3", maxNum=0),
                by_key("k3", maxNum=-5),
            ):
                reply = await call(nothing)
                assert reply.code == ResponseCode.QUERY_NOT_FOUND
                assert reply.remark == "can not find message, maybe time range not correct"
            assert (await call(by_key("k3", indexType="X"))).code == ResponseCode.INVALID_PARAMETER

    run(main())


@pytest.mark.proves("broker:4.3", "broker:15.2")
def test_settings_limit_a_query(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, max_msgs_num_batch=4, default_query_max_num=2) as call:
            await fill(call, 8)
            assert len(bodies(await call(by_key("all", maxNum=1000)))) == 4
            assert len(bodies(await call(by_key("all", maxNum=1000, _UNIQUE_KEY_QUERY="true")))) == 2

    run(main())


@pytest.mark.proves("broker:4.2")
def test_key_queries_find_nothing_without_an_index(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, message_index_enable=False) as call:
            (message_id,) = await fill(call, 1)
            assert (await call(by_key("k0"))).code == ResponseCode.QUERY_NOT_FOUND
            by_id = ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=int(message_id[-16:], 16))
            assert bodies(await call(by_id)) == [b"0"]

    run(main())


@pytest.mark.proves("client:E-50")
def test_message_is_found_by_its_physical_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            ids = await fill(call, 3)
            for number, message_id in enumerate(ids):
                request = ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=int(message_id[-16:], 16))
                assert bodies(await call(request)) == [b"%d" % number]
            for offset in (-1, 1, 2**40, -(2**63), 2**63 - 1):
                reply = await call(ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset))
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == f"can not find message by the offset, {offset}"

    run(main())


def test_entries_of_a_queue_are_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            ids = await fill(call, 6)
            where = {"topic": "TopicTest", "queueId": 1}
            request = ask(RequestCode.QUERY_CONSUME_QUEUE, index=1, count=10, **where)
            found = QueryConsumeQueueBody.decode((await call(request)).body)
            assert (found.min_queue_index, found.max_queue_index) == (0, 3)
            offsets = [int(message_id[-16:], 16) for message_id in ids]
            assert [entry.physic_offset for entry in found.queue_data] == [offsets[3], offsets[5]]
            assert all(entry.tags_code == 2598919 and entry.physic_size > 91 for entry in found.queue_data)
            for index, count, wanted in ((-5, 2, 2), (3, 5, 0), (0, -1, 0), (99, 1, 0)):
                request = ask(RequestCode.QUERY_CONSUME_QUEUE, index=index, count=count, **where)
                assert len(QueryConsumeQueueBody.decode((await call(request)).body).queue_data) == wanted
            missing = ask(RequestCode.QUERY_CONSUME_QUEUE, topic="No", queueId=0, index=0, count=1)
            assert (await call(missing)).code == ResponseCode.SYSTEM_ERROR

    run(main())


def test_disk_error_is_returned_as_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path) as call:
            await fill(call, 1)
            assert bodies(await call(by_key("k0"))) == [b"0"]

            def broken(*_: object) -> None:
                raise OSError(5, "Input/output error")

            with monkeypatch.context() as patch:
                patch.setattr(IndexFile, "find", broken)
                reply = await call(by_key("k0"))
            assert "cannot read the index" in (reply.remark or "")
            assert bodies(await call(by_key("k0"))) == [b"0"]

    run(main())


def test_too_long_key_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is computed per character: a key of 4 MB blocked all other requests for half a second."""

    async def main() -> None:
        async with serving(tmp_path) as call:
            await fill(call, 1)
            looked: list[str] = []

            def look(topic: str, key: str, *rest: Any, **more: Any) -> Generator[None, None, Any]:
                looked.append(key)
                yield
                return [], True

            monkeypatch.setattr(call.broker.parts.store, "query", look)
            for fields in ({"key": "x" * 70_000}, {"key": "x", "topic": "T" * 70_000}, {"key": "x" * 60_000}):
                assert (await call(by_key(**fields))).code == ResponseCode.QUERY_NOT_FOUND
            assert looked == ["x" * 60_000]

    run(main())


def test_entries_of_a_queue_show_what_the_subscription_of_a_group_matches(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, enable_property_filter=True) as call:
            await fill(call, 2)

            async def asked(group: str) -> dict[str, Any]:
                where = {"topic": "TopicTest", "queueId": 0, "index": 0, "count": 1, "consumerGroup": group}
                found: dict[str, Any] = json.loads(
                    (await call(ask(RequestCode.QUERY_CONSUME_QUEUE, **where))).body
                )
                return found

            offline = await asked("g")
            assert offline["filterData"] == "g@TopicTest is not online!"
            assert "subscriptionData" not in offline
            for group, wanted in (
                ("tags", SubscriptionData("TopicTest", "TagA", frozenset({"TagA"}), 5)),
                ("sql", SubscriptionData("TopicTest", "a > 1", version=5, expression_type="SQL92")),
            ):
                consumers = (ConsumerData(group, subscriptions=(wanted,)),)
                beat = HeartbeatData(client_id=f"c-{group}", consumers=consumers)
                assert (await call(Command(RequestCode.HEART_BEAT, body=beat.encode()))).code == 0
                found = await asked(group)
                assert found["subscriptionData"]["subString"] == wanted.expression
                assert [entry["eval"] for entry in found["queueData"]] == [False]
                told = json.loads(found["filterData"])
                assert (told and told["expression"]) == (None if group == "tags" else "a > 1")

    run(main())
