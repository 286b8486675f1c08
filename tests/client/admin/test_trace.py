from __future__ import annotations

import pytest
from tests.client.fake import fake_cluster
from tests.support import run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.trace import sort_traces
from sparrowmq.protocol.trace import PubTrace, SubAfterTrace, SubBeforeTrace, encode_trace


def sent(message_id: str, time: int, keys: str = "") -> PubTrace:
    return PubTrace(
        time=time,
        region="r",
        group="p",
        topic="T",
        message_id=message_id,
        tags="",
        keys=keys,
        store_host="h",
        body_bytes=1,
        cost=2,
        message_type=0,
        offset_message_id="o",
        success=True,
        client_host="",
    )


def begun(message_id: str, time: int, request: str) -> SubBeforeTrace:
    return SubBeforeTrace(
        time=time, region="r", group="g", request_id=request, message_id=message_id, retry_times=0, keys=""
    )


def ended(message_id: str, request: str) -> SubAfterTrace:
    return SubAfterTrace(
        request_id=request, message_id=message_id, cost=3, success=True, keys="", time=0, group=""
    )


@pytest.mark.proves("client:B-115")
def test_ends_follow_their_beginnings_although_old_ones_have_no_time() -> None:
    first, second = begun("m", 20, "q1"), begun("m", 30, "q2")
    records = [ended("m", "q2"), ended("m", "q1"), second, first, sent("m", 10)]
    assert sort_traces(records) == [sent("m", 10), first, ended("m", "q1"), second, ended("m", "q2")]


@pytest.mark.proves("client:B-111", "client:B-112")
def test_records_of_one_message_are_found_by_id_and_key() -> None:
    async def main() -> None:
        async with fake_cluster("RMQ_SYS_TRACE_TOPIC", queues=1) as cluster, Admin(cluster.namesrv) as admin:
            assert await admin.messages.trace("m", topic="Nowhere") == []
            found = []

            async def query(topic: str, key: str, **more: object) -> list[object]:
                assert topic == "RMQ_SYS_TRACE_TOPIC"
                return list(found)

            admin.messages.query = query
            assert await admin.messages.trace("m") == []

            class Held:
                sys_flag = 0
                body = "".join(
                    encode_trace(one)
                    for one in (sent("m", 10, "k1 k2"), sent("other", 11), begun("m", 12, "q"))
                ).encode()

            found += [Held, Held]  # the same message from two brokers, or found by two keys
            assert await admin.messages.trace("m") == [sent("m", 10, "k1 k2"), begun("m", 12, "q")]
            assert await admin.messages.trace("k2") == [sent("m", 10, "k1 k2")]
            assert await admin.messages.trace("k") == []
            Held.body = encode_trace(sent("m1,m2", 10)).encode()
            assert await admin.messages.trace("m2") == [sent("m1,m2", 10)], (
                "a batch has the ids of its messages"
            )

    run(main())
