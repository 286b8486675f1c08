"""Requests that real clients and tools sent to a real broker, replayed against ours.

The recordings hold what Apache RocketMQ 5.5.0 answered. Ours must answer the same requests with a code of the
same kind and with every header field the reference gave, because clients read them without looking.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import send_command
from tests.support import run

from sparrowmq.broker.server import Broker
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, decode
from sparrowmq.transport.client import RemotingClient

RECORDINGS = Path(__file__).parent.parent / "fixtures" / "wire"
CLIENTS = ("java-4.9.jsonl", "java-5.5.jsonl", "cpp.jsonl", "node.jsonl", "mqadmin.jsonl")

SAME_CODE = {
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
}
SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
PULL_CODES = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}
OF_THE_PAST = ("TIMER_DELIVER_MS",)
"""Sends for a time of day: what was ahead when they were recorded is over by now."""
BODY_LEFT_OUT = "dropped"
"""What the note of a recording says whose answer's body was too large to keep."""


def exchanges(name: str, codes: set[RequestCode]) -> list[tuple[Command, Command, bytes, str]]:
    """Request, the reference's answer, the request as bytes, note: the exchanges with a broker."""
    found = []
    for line in (RECORDINGS / name).read_text().splitlines():
        entry = json.loads(line)
        if entry["to"] != "broker" or entry["code"] not in codes or not entry["response"]:
            continue
        raw = base64.b64decode(entry["request"])
        request = decode(*FrameReader().feed(raw)[0])
        answer = decode(*FrameReader().feed(base64.b64decode(entry["response"]))[0])
        if answer.code != ResponseCode.NO_PERMISSION and not request.flag & FLAG_ONEWAY:
            found.append((request, answer, raw, entry["note"]))
    return found


def topics_of(requests: list[Command]) -> set[str]:
    return {name for r in requests if (name := r.ext.get("topic") or r.ext.get("b"))}


async def replay(root: Path, pairs: list[Any]) -> list[Command]:
    """Our answers; topics that the reference knew are made first, with as many queues as any request asks."""
    broker = Broker(BrokerSettings(store_path_root_dir=root, listen_port=0))
    await broker.start()
    client = RemotingClient()
    try:
        known = topics_of([r for r, a, *_ in pairs if a.code != ResponseCode.TOPIC_NOT_EXIST])
        for name in sorted(known):
            if name not in broker.parts.topics.configs:
                queues = {"read_queue_nums": 16, "write_queue_nums": 16}
                broker.parts.topics.put_soon(TopicConfig(topic_name=name, **queues))
        await broker.parts.topics.kept(known)
        return [await client.call(broker.address, request, 10.0) for request, *_ in pairs]
    finally:
        await client.close()
        await broker.close()


@pytest.mark.parametrize("name", CLIENTS)
def test_administration_and_membership_answer_as_recorded(name: str, tmp_path: Path) -> None:
    pairs = [p for p in exchanges(name, SAME_CODE) if p[1].code == ResponseCode.SUCCESS]
    assert pairs, name
    for (request, wanted, _, note), answer in zip(pairs, run(replay(tmp_path, pairs)), strict=True):
        where = f"{request.code} {request.ext} ({note}): {answer.remark}"
        assert answer.code == wanted.code, where
        assert set(wanted.ext) - {"totalTopicNum", "totalGroupNum"} <= set(answer.ext), where
        if BODY_LEFT_OUT not in note:
            assert bool(wanted.body) == bool(answer.body), where


@pytest.mark.parametrize("name", [n for n in CLIENTS if n != "mqadmin.jsonl"])
def test_sends_answer_as_recorded(name: str, tmp_path: Path) -> None:
    pairs = [
        p
        for p in exchanges(name, SENDS)
        if p[1].code == ResponseCode.SUCCESS
        and not any(mark in text for mark in OF_THE_PAST for text in p[0].ext.values())
    ]
    assert pairs, name
    for (request, wanted, _, note), answer in zip(pairs, run(replay(tmp_path, pairs)), strict=True):
        where = f"{request.code} {request.ext} ({note}): {answer.remark}"
        assert answer.code == ResponseCode.SUCCESS, where
        assert set(wanted.ext) <= set(answer.ext), where
        if any("UNIQ_KEY" in text for text in request.ext.values()):
            assert answer.ext.get("transactionId") == wanted.ext.get("transactionId"), where
        assert answer.ext["msgId"].count(",") == wanted.ext["msgId"].count(","), where


@pytest.mark.proves("broker:7")
@pytest.mark.parametrize("name", CLIENTS)
def test_send_backs_answer_as_recorded(name: str, tmp_path: Path) -> None:
    """The reference had a message at the offset, as ours has at 0; where it had none, ours says the same."""
    pairs: list[Any] = [(send_command(b"to be sent back"), Command(ResponseCode.SUCCESS))]
    for request, wanted, *_ in exchanges(name, {RequestCode.CONSUMER_SEND_MSG_BACK}):
        if wanted.code == ResponseCode.SUCCESS:
            request.ext["offset"] = "0"
        pairs.append((request, wanted))
    assert len(pairs) > 1 or name == "cpp.jsonl"
    answers = run(replay(tmp_path, pairs))
    for (_, wanted), answer in list(zip(pairs, answers, strict=True))[1:]:
        assert (answer.code, answer.remark, answer.ext) == (wanted.code, wanted.remark, wanted.ext)


@pytest.mark.parametrize("name", CLIENTS)
def test_pulls_carry_what_clients_read(name: str, tmp_path: Path) -> None:
    pairs = [
        p
        for p in exchanges(name, PULLS)
        if p[1].code in PULL_CODES
        and p[0].ext.get("expressionType", "TAG") == "TAG"
        and int(p[0].ext["sysFlag"]) & 6 == 4
    ]
    for (request, wanted, _, note), answer in zip(pairs, run(replay(tmp_path, pairs)), strict=True):
        where = f"{request.code} {request.ext} ({note}): {answer.remark}"
        assert answer.code in PULL_CODES, where
        assert set(wanted.ext) <= set(answer.ext), where
        assert all(answer.ext[field].lstrip("-").isdecimal() for field in wanted.ext), where


def test_some_pulls_are_replayed() -> None:
    assert sum(len(exchanges(name, PULLS)) for name in CLIENTS) > 50
