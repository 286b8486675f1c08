"""The fast paths agree with the general ones: on recorded requests, on made-up ones, in what they write."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.protocol import hot
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, FrameReader, decode, encode
from sparrowmq.protocol.headers import (
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    from_ext,
    send_from_v2,
    send_v2_to_ext,
    to_ext,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def send_fields(request: SendMessageRequest) -> tuple[object, ...]:
    """What the send path takes of a typed header, in the order of the fast path's fields."""
    return (
        request.topic,
        request.queue_id,
        request.sys_flag,
        request.born_timestamp,
        request.flag,
        request.properties or "",
        request.reconsume_times,
        request.batch,
        False,  # idempotent is no field of Apache's headers
    )


def test_recorded_sends_decode_to_the_fields_of_the_general_path() -> None:
    fast = 0
    for exchange, command in recorded.requests(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        kind, header, _ = recorded.raw(exchange.request)
        frame = hot.decode_send(header)
        if kind == 1 or "c" not in command.ext:
            assert frame is None, exchange
            continue
        assert frame is not None, exchange
        fast += 1
        assert (frame.opaque, frame.flag) == (command.opaque, command.flag), exchange
        assert msgspec.structs.astuple(frame.fields) == send_fields(send_from_v2(command.ext)), exchange
    assert fast > 50


def test_recorded_pulls_decode_to_the_fields_of_the_general_path() -> None:
    fast = 0
    for exchange, command in recorded.requests(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        kind, header, _ = recorded.raw(exchange.request)
        frame = hot.decode_pull(header)
        assert (frame is None) == (kind == 1), exchange
        if frame is None:
            continue
        fast += 1
        general = from_ext(PullMessageRequest, command.ext)
        assert (frame.opaque, frame.flag) == (command.opaque, command.flag), exchange
        for name in hot.PullFields.__struct_fields__:
            assert getattr(frame.fields, name) == getattr(general, name), exchange
    assert fast > 90


@pytest.mark.proves("broker:9.2")
def test_recorded_ends_decode_to_the_fields_of_the_general_path() -> None:
    fast = 0
    for exchange, command in recorded.requests(RequestCode.END_TRANSACTION):
        kind, header, _ = recorded.raw(exchange.request)
        frame = hot.decode_end(header)
        assert (frame is None) == (kind == 1), exchange
        if frame is None:
            continue
        fast += 1
        general = from_ext(EndTransactionRequest, command.ext)
        assert (frame.opaque, frame.flag) == (command.opaque, command.flag), exchange
        for name in hot.EndFields.__struct_fields__:
            assert getattr(frame.fields, name) == getattr(general, name), exchange
    assert fast > 2


def test_java_writes_sends_and_pulls_the_way_the_prefixes_expect() -> None:
    prefixes: dict[RequestCode, bytes | tuple[bytes, ...]] = {
        RequestCode.SEND_MESSAGE_V2: hot.SEND_PREFIXES,
        RequestCode.SEND_BATCH_MESSAGE: hot.SEND_PREFIXES,
        RequestCode.PULL_MESSAGE: hot.PULL_PREFIXES,
        RequestCode.LITE_PULL_MESSAGE: hot.PULL_PREFIXES,
        RequestCode.END_TRANSACTION: hot.END_PREFIX,
    }
    hits = dict.fromkeys(prefixes, 0)
    for exchange, _ in recorded.requests(*prefixes):
        kind, header, _ = recorded.raw(exchange.request)
        if kind == 0 and exchange.client.startswith("java"):
            assert header.startswith(prefixes[RequestCode(exchange.code)]), exchange
            hits[RequestCode(exchange.code)] += 1
    assert all(hits.values()), hits


@given(
    st.builds(
        SendMessageRequest,
        producer_group=TEXT,
        topic=TEXT,
        default_topic=TEXT,
        default_topic_queue_nums=INT32,
        queue_id=INT32,
        sys_flag=INT32,
        born_timestamp=INT64,
        flag=INT32,
        properties=st.none() | TEXT,
        reconsume_times=INT32,
        unit_mode=st.booleans(),
        max_reconsume_times=st.none() | INT32,
        batch=st.booleans(),
        broker_name=st.none() | TEXT,
    )
)
def test_our_own_sends_take_the_fast_path(request: SendMessageRequest) -> None:
    _, header, _ = recorded.raw(encode(Command(310, 5, 2, send_v2_to_ext(request))))
    frame = hot.decode_send(header)
    assert frame is not None
    assert (frame.opaque, frame.flag) == (5, 2)
    assert msgspec.structs.astuple(frame.fields) == send_fields(request)


@pytest.mark.parametrize("decoder", [hot.decode_send, hot.decode_pull, hot.decode_end])
@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b'{"code":310,"opaque":1,"flag":0,"extFields":{}}',
        b'{"code":11,"opaque":1,"flag":0}',
        b"\xff",
        b'{"opaque":1,"x":' + b"[" * 100_000,
    ],
    ids=range(6),
)
def test_odd_headers_take_the_general_path(decoder: object, header: bytes) -> None:
    assert callable(decoder)
    assert decoder(header) is None


@pytest.mark.parametrize("name", ["e", "f", "g", "h", "j"])
@pytest.mark.parametrize("value", ["x", "", "9223372036854775808"])
def test_sends_with_numbers_out_of_range_take_the_general_path(name: str, value: str) -> None:
    ext = {"b": "T", "e": "0", "f": "0", "g": "0", "h": "0", name: value}
    _, header, _ = recorded.raw(encode(Command(310, ext=ext)))
    assert hot.decode_send(header) is None


@given(st.binary(max_size=120))
def test_noise_takes_the_general_path(noise: bytes) -> None:
    assert hot.decode_send(b'{"code":310,"opaque":1,"extFields":{' + noise) is None
    assert hot.decode_pull(b'{"code":11,"opaque":1,"extFields":{' + noise) is None


@pytest.mark.parametrize("unique_key", [b"", b"7F000001"])
@pytest.mark.parametrize(("trace_on", "text"), [(True, "true"), (False, "false")])
def test_a_send_answer_decodes_to_what_was_put_in(unique_key: bytes, trace_on: bool, text: str) -> None:
    answers = hot.SendAnswers(region='100%d"é', trace_on=trace_on)
    data = answers.frame(10, -7, 3, 2**40, b"0A0B", unique_key)
    command = recorded.command(data)
    assert (command.code, command.opaque, command.flag) == (10, -7, FLAG_RESPONSE)
    assert from_ext(SendMessageResponse, command.ext) == SendMessageResponse(
        msg_id="0A0B",
        queue_id=3,
        queue_offset=2**40,
        transaction_id=unique_key.decode() or None,
        region_id='100%d"é',
        trace_on=text,
    )


@pytest.mark.proves("broker:8.3")
def test_the_answer_to_a_timed_send_has_the_handle_that_takes_it_back() -> None:
    answers = hot.SendAnswers(region="100%", trace_on=True)
    data = answers.recallable(0, 7, 3, 2**40, b"0A0B", b"U", handle=b"djE=")
    command = recorded.command(data)
    assert (command.code, command.opaque, command.flag) == (0, 7, FLAG_RESPONSE)
    assert from_ext(SendMessageResponse, command.ext) == SendMessageResponse(
        msg_id="0A0B",
        queue_id=3,
        queue_offset=2**40,
        transaction_id="U",
        region_id="100%",
        trace_on="true",
        recall_handle="djE=",
    )


def test_send_answers_have_the_fields_of_the_recorded_ones() -> None:
    ours = recorded.command(hot.SendAnswers(region="R", trace_on=True).frame(0, 1, 2, 3, b"ID", b"U"))
    for exchange, answer in recorded.answers(RequestCode.SEND_MESSAGE_V2):
        if answer.code == 0 and answer.ext.keys() - ours.ext.keys() != {"recallHandle"}:
            assert answer.ext.keys() == ours.ext.keys(), exchange


def test_a_pull_answer_is_followed_by_its_body() -> None:
    data = hot.pull_answer(0, 9, 5, 1, 7, b"FOUND", 4) + b"BODY"
    (frame,) = FrameReader().feed(data)
    command = decode(*frame)
    expected = PullMessageResponse(
        suggest_which_broker_id=0,
        next_begin_offset=5,
        min_offset=1,
        max_offset=7,
        offset_delta=0,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    assert command == Command(0, 9, FLAG_RESPONSE, to_ext(expected), b"BODY", "FOUND", "PYTHON")


@given(st.binary(max_size=40))
def test_json_text_is_the_text_between_the_quotes(value: bytes) -> None:
    assert msgspec.json.decode(b'"' + hot.json_text(value) + b'"') == value.decode("utf-8", "replace")
