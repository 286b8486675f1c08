"""Subscriptions and filters that break a rule: refused by name on every way in, while others are served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.bad_input import TOPIC, ask, connected, neighbour, send_one
from tests.support import run
from tests.transport.helpers import Peer

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, InvalidExpressionError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

PARSE_FAILED = ResponseCode.SUBSCRIPTION_PARSE_FAILED
SQL_ERRORS = [
    ("", "the SQL92 expression is empty"),
    (" ", "expected a property"),
    ("a", ""),
    ("a >", "column 4"),
    ("a > 1 AND", "column 10"),
    ("AND a > 1", "column 1"),
    ("a > 'x'", "column 3"),
    ("a = NULL", "IS NULL"),
    ("a = 'x", "does not end"),
    ("a = 1 /* x", "does not end"),
    ("a ? 1", "'?' has no meaning"),
    ("5", "not a condition"),
    ("a + 1 > 2", ""),
    ("a IN (1, 2)", "expected a string, found '1'"),
    ("a IN ()", "expected a string"),
    ("a BETWEEN 5 AND 1", "write the smaller value first"),
    ("a > 9223372036854775808", "above the largest integer"),
    ("a LIKE 'x%'", ""),
    ("a = 'x' AND \x00b = 1", "has no meaning"),
    ("(" * 5000 + "a = 1" + ")" * 5000, "nested deeper than 100 levels"),
    ("NOT " * 5000 + "TRUE", "nested deeper than 100 levels"),
    ("a = 'x' OR " * 4000 + "a = 'y'", "the limit is 32768"),
]
"""Expressions and what is said of them; the ones without words are complete as far as the reference reads."""

REFUSED_SQL = [(text, word) for text, word in SQL_ERRORS if word]
IDS = [text[:20] or "empty" for text, _ in REFUSED_SQL]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(enable_property_filter=True) as running:
        running.create_topic(TOPIC, queues=1)
        yield running


def pull(group: str = "g", **fields: Any) -> Command:
    """A pull at the queue's end; with `sysFlag` 4 its subscription comes with it."""
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "queueOffset": 1 << 40, "maxMsgNums": 1}
    ext |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
    return Command(RequestCode.PULL_MESSAGE, ext={name: str(value) for name, value in (ext | fields).items()})


def check(group: str, expression: str, kind: str = "SQL92") -> Command:
    """The question a client asks before it starts."""
    body = {"clientId": "c", "group": group, "subscriptionData": subscription(expression, kind)}
    return Command(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())


def subscription(expression: str, kind: str = "SQL92", **fields: Any) -> dict[str, Any]:
    data = {"topic": TOPIC, "subString": expression, "expressionType": kind, "subVersion": 1}
    return data | {"tagsSet": [], "codeSet": [], "classFilterMode": False} | fields


def heartbeat(group: str, *subscriptions: Any, client: str = "c") -> Command:
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    consumer |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": list(subscriptions)}
    body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
    return Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


async def call(peer: Peer, request: Command) -> Command:
    """The answer on a connection that stays; requests of the broker in between are not answered."""
    await peer.send(request)
    while not (answer := await peer.command()).is_response:
        pass
    return answer


@pytest.mark.proves("broker:14.2", "broker:5.3")
def test_filters_that_cannot_be_read_are_refused_where_pulls_bring_them(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with neighbour(cluster.broker_address, send_one) as other:
            for text, word in REFUSED_SQL:
                wrong = pull(subscription=text, expressionType="SQL92")
                pulled, checked = await ask(cluster.broker_address, wrong, check("g", text))
                assert (pulled.code, checked.code) == (PARSE_FAILED, PARSE_FAILED), text
                assert word in (pulled.remark or ""), (text, pulled.remark)
                assert word in (checked.remark or ""), (text, checked.remark)
                assert len(pulled.remark or "") < 300
            await other.goes_on()

    run(main())


@pytest.mark.proves("broker:14.1", "broker:5.3")
@pytest.mark.parametrize(
    ("expression", "kind", "word"),
    [
        ("||", "TAG", "'||'"),
        (" || | || ".replace("| ", ""), "TAG", "has no tag"),
        ("|| || ||", "", "has no tag"),
        ("a = 1", "SQL99", "the expression type 'SQL99' is unknown; known: TAG, SQL92"),
        ("a = 1", "sql92", "'sql92' is unknown"),
        ("a = 1", "T" * 5000, "is unknown"),
        ("a = 1", "\x1b[2J", r"'\x1b[2J' is unknown"),
    ],
)
def test_tags_without_a_tag_and_unknown_types_are_refused(
    cluster: LocalCluster, expression: str, kind: str, word: str
) -> None:
    (answer,) = run(ask(cluster.broker_address, pull(subscription=expression, expressionType=kind)))
    assert answer.code == PARSE_FAILED
    assert word in (answer.remark or ""), answer.remark
    assert len(answer.remark or "") < 300


@pytest.mark.proves("broker:14.2", "broker:1.4")
def test_a_heartbeat_with_a_wrong_filter_counts_and_the_next_good_one_mends_it(cluster: LocalCluster) -> None:
    """The group is online; its pulls are told that there is no filter, and by which expression."""

    async def main() -> None:
        registered = {"sysFlag": 0, "subVersion": 1, "subscription": ""}
        async with connected(cluster.broker_address) as peer:
            assert (await call(peer, heartbeat("mended", subscription("a >")))).code == ResponseCode.SUCCESS
            refusal = await call(peer, pull("mended", **registered))
            assert refusal.code == ResponseCode.FILTER_DATA_NOT_EXIST
            assert "your expression may be wrong: a >" in (refusal.remark or "")
            good = subscription("a > 1", subVersion=2)
            assert (await call(peer, heartbeat("mended", good))).code == ResponseCode.SUCCESS
            assert (await call(peer, pull("mended", **registered))).code == ResponseCode.PULL_OFFSET_MOVED
            stranger = await call(peer, pull("mended", **registered | {"topic": "TBW102"}))
            assert stranger.code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"topic": None},
        {"topic": ""},
        {"topic": 5},
        {"topic": TOPIC, "subString": None, "expressionType": None},
        {"topic": TOPIC, "subString": ["a"]},
        {"topic": TOPIC, "subVersion": "soon"},
        {"topic": TOPIC, "subVersion": 2**70},
        {"topic": TOPIC, "tagsSet": "TagA"},
        {"topic": TOPIC, "codeSet": [2**40]},
        {"topic": "../../etc", "subString": "*"},
        {"topic": "T" * 70_000, "subString": "*"},
        None,
        "TagA",
        [],
    ],
    ids=lambda data: json.dumps(data)[:40],
)
def test_subscriptions_that_are_none_are_answered(cluster: LocalCluster, data: Any) -> None:
    """Taken as far as they can be read, or refused with words; nobody else notices."""

    async def main() -> None:
        async with neighbour(cluster.broker_address, send_one) as other:
            beat = heartbeat("odd", data)
            body = {"clientId": "c", "group": "odd", "subscriptionData": data}
            question = Command(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())
            for answer in await ask(cluster.broker_address, beat, question):
                assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, PARSE_FAILED), answer
                assert answer.code == ResponseCode.SUCCESS or answer.remark
            await other.goes_on()

    run(main())


@pytest.mark.proves("broker:14.2")
def test_without_property_filters_every_way_in_says_which_setting_makes_them() -> None:
    async def push(namesrv: str) -> None:
        consumer = aio.PushConsumer("g", namesrv=namesrv)
        consumer.subscribe(TOPIC, mq.Sql("a > 1"), handler=print)
        await consumer.start()

    async def poll(namesrv: str) -> None:
        consumer = aio.PullConsumer("g", namesrv=namesrv)
        consumer.subscribe(TOPIC, mq.Sql("a > 1"))
        await consumer.start()

    with LocalCluster(enable_property_filter=False) as plain:
        plain.create_topic(TOPIC, queues=1)
        requests = pull(subscription="a > 1", expressionType="SQL92"), check("g", "a > 1")
        for answer in run(ask(plain.broker_address, *requests)):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
        for start in (push, poll):
            with pytest.raises(BrokerError, match="filter message by SQL92"):
                run(start(plain.namesrv))


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(("text", "word"), REFUSED_SQL, ids=IDS)
def test_clients_refuse_a_filter_at_subscribe_and_name_position_and_token(text: str, word: str) -> None:
    """Nothing has to be running for that."""
    consumers = (
        lambda: aio.PushConsumer("g", namesrv="127.0.0.1:1").subscribe("T", mq.Sql(text), handler=print),
        lambda: aio.PullConsumer("g", namesrv="127.0.0.1:1").subscribe("T", mq.Sql(text)),
        lambda: mq.PushConsumer("g", namesrv="127.0.0.1:1").subscribe("T", mq.Sql(text), handler=print),
    )
    for subscribe in consumers:
        with pytest.raises(InvalidExpressionError) as caught:
            subscribe()
        error = caught.value
        assert error.position is not None and error.token is not None
        assert text[error.position :].startswith(error.token.rstrip("…")), (error.position, error.token)
        assert not text or word in str(error)
