"""Typed headers: every recorded request and answer, round trips, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol import recorded
from tests.support import about

from sparrowmq.core.errors import HeaderError
from sparrowmq.protocol import headers as h
from sparrowmq.protocol.codes import RequestCode as Code

REQUESTS: dict[int, type[h.Header]] = {
    Code.SEND_MESSAGE: h.SendMessageRequest,
    Code.PULL_MESSAGE: h.PullMessageRequest,
    Code.LITE_PULL_MESSAGE: h.PullMessageRequest,
    Code.QUERY_CONSUMER_OFFSET: h.QueryConsumerOffsetRequest,
    Code.UPDATE_CONSUMER_OFFSET: h.UpdateConsumerOffsetRequest,
    Code.UPDATE_AND_CREATE_TOPIC: h.CreateTopicRequest,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: h.SearchOffsetRequest,
    Code.GET_MAX_OFFSET: h.GetMaxOffsetRequest,
    Code.GET_MIN_OFFSET: h.GetMinOffsetRequest,
    Code.GET_EARLIEST_MSG_STORETIME: h.GetEarliestMsgStoretimeRequest,
    Code.VIEW_MESSAGE_BY_ID: h.ViewMessageRequest,
    Code.UNREGISTER_CLIENT: h.UnregisterClientRequest,
    Code.CONSUMER_SEND_MSG_BACK: h.ConsumerSendMsgBackRequest,
    Code.GET_CONSUMER_LIST_BY_GROUP: h.GetConsumerListByGroupRequest,
    Code.NOTIFY_CONSUMER_IDS_CHANGED: h.NotifyConsumerIdsChangedRequest,
    Code.PUT_KV_CONFIG: h.PutKVConfigRequest,
    Code.GET_KV_CONFIG: h.GetKVConfigRequest,
    Code.DELETE_KV_CONFIG: h.DeleteKVConfigRequest,
    Code.REGISTER_BROKER: h.RegisterBrokerRequest,
    Code.UNREGISTER_BROKER: h.UnregisterBrokerRequest,
    Code.GET_ROUTEINFO_BY_TOPIC: h.GetRouteInfoRequest,
    Code.GET_TOPIC_STATS_INFO: h.GetTopicStatsInfoRequest,
    Code.GET_CONSUMER_CONNECTION_LIST: h.GetConsumerConnectionListRequest,
    Code.GET_PRODUCER_CONNECTION_LIST: h.GetProducerConnectionListRequest,
    Code.WIPE_WRITE_PERM_OF_BROKER: h.WipeWritePermRequest,
    Code.DELETE_SUBSCRIPTIONGROUP: h.DeleteSubscriptionGroupRequest,
    Code.GET_CONSUME_STATS: h.GetConsumeStatsRequest,
    Code.DELETE_TOPIC_IN_BROKER: h.DeleteTopicRequest,
    Code.DELETE_TOPIC_IN_NAMESRV: h.DeleteTopicFromNamesrvRequest,
    Code.GET_KVLIST_BY_NAMESPACE: h.GetKVListByNamespaceRequest,
    Code.GET_TOPICS_BY_CLUSTER: h.GetTopicsByClusterRequest,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: h.QueryTopicConsumeByWhoRequest,
    Code.QUERY_DATA_VERSION: h.QueryDataVersionRequest,
    Code.ADD_WRITE_PERM_OF_BROKER: h.AddWritePermRequest,
    Code.QUERY_TOPICS_BY_CONSUMER: h.QueryTopicsByConsumerRequest,
    Code.GET_TOPIC_CONFIG: h.GetTopicConfigRequest,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: h.GetSubscriptionGroupConfigRequest,
    Code.GET_BROKER_MEMBER_GROUP: h.GetBrokerMemberGroupRequest,
    Code.BROKER_HEARTBEAT: h.BrokerHeartbeatRequest,
}
RESPONSES: dict[int, tuple[type[h.Header], set[int]]] = {
    Code.SEND_MESSAGE: (h.SendMessageResponse, {0}),
    Code.SEND_MESSAGE_V2: (h.SendMessageResponse, {0}),
    Code.SEND_BATCH_MESSAGE: (h.SendMessageResponse, {0}),
    Code.PULL_MESSAGE: (h.PullMessageResponse, {0, 19, 20, 21}),
    Code.LITE_PULL_MESSAGE: (h.PullMessageResponse, {0, 19, 20, 21}),
    Code.QUERY_CONSUMER_OFFSET: (h.QueryConsumerOffsetResponse, {0}),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (h.SearchOffsetResponse, {0}),
    Code.GET_MAX_OFFSET: (h.GetMaxOffsetResponse, {0}),
    Code.GET_MIN_OFFSET: (h.GetMinOffsetResponse, {0}),
    Code.GET_EARLIEST_MSG_STORETIME: (h.GetEarliestMsgStoretimeResponse, {0}),
    Code.GET_KV_CONFIG: (h.GetKVConfigResponse, {0}),
    Code.REGISTER_BROKER: (h.RegisterBrokerResponse, {0}),
    Code.QUERY_DATA_VERSION: (h.QueryDataVersionResponse, {0}),
    Code.WIPE_WRITE_PERM_OF_BROKER: (h.WipeWritePermResponse, {0}),
    Code.ADD_WRITE_PERM_OF_BROKER: (h.AddWritePermResponse, {0}),
}
EVERYWHERE = {"AccessKey", "Signature", "OnsChannel", "SecurityToken", "ReqT", "ns", "nsd", "bname"}
ZERO = {"false": "0"}
ALL = sorted(
    {*REQUESTS.values(), *(type_ for type_, _ in RESPONSES.values())}, key=lambda type_: type_.__name__
)


def is_subset(fields: dict[str, str], recorded_fields: dict[str, str]) -> bool:
    """Whether every recorded field came back with its value; C++ writes false as 0."""
    return all(
        name in EVERYWHERE
        or name not in fields
        or value.lower() in (fields[name].lower(), ZERO.get(fields[name]))
        for name, value in recorded_fields.items()
    )


@pytest.mark.parametrize("code", sorted(REQUESTS), ids=lambda code: Code(code).name)
def test_every_recorded_request_is_understood_and_loses_nothing(code: int) -> None:
    seen = 0
    for exchange, command in recorded.requests(code):
        header = h.from_ext(REQUESTS[code], command.ext)
        again = h.to_ext(header)
        assert command.ext.keys() - EVERYWHERE <= again.keys(), exchange
        assert is_subset(again, command.ext), exchange
        assert h.from_ext(REQUESTS[code], again) == header, exchange
        seen += 1
    assert seen


def test_every_recorded_send_in_letters_is_understood() -> None:
    seen = refused = 0
    for exchange, command in recorded.requests(Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, 325):
        if "c" not in command.ext:
            with pytest.raises(HeaderError, check=about(what="defaultTopic", value=None)):
                h.send_from_v2(command.ext)
            refused += 1
            continue
        header = h.send_from_v2(command.ext)
        again = h.send_v2_to_ext(header)
        assert command.ext.keys() - EVERYWHERE <= again.keys(), exchange
        assert is_subset(again, command.ext), exchange
        assert h.send_from_v2(again) == header, exchange
        seen += 1
    assert (seen, refused) == (68, 1)


@pytest.mark.parametrize("code", sorted(RESPONSES), ids=lambda code: Code(code).name)
def test_every_recorded_answer_is_understood(code: int) -> None:
    type_, codes = RESPONSES[code]
    seen = 0
    for exchange, answer in recorded.answers(code):
        if answer.code in codes:
            again = h.to_ext(h.from_ext(type_, answer.ext))
            assert answer.ext.keys() <= again.keys(), exchange
            assert is_subset(again, answer.ext), exchange
            seen += 1
    assert seen


def of_type(type_: type[h.Header]) -> st.SearchStrategy[h.Header]:
    """Headers of a type, fields drawn by their annotations."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: text,
        bool: st.booleans(),
        h.Int32: st.integers(-(2**31), 2**31 - 1),
        h.Int64: st.integers(-(2**63), 2**63 - 1),
    }
    kinds |= {kind | None: st.none() | strategy for kind, strategy in kinds.items()}
    return st.builds(type_, **{info.name: kinds[info.type] for info in msgspec.structs.fields(type_)})


@pytest.mark.parametrize("type_", ALL, ids=lambda type_: type_.__name__)
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_what_is_written_is_read_back(type_: type[h.Header], data: st.DataObject) -> None:
    header = data.draw(of_type(type_))
    ext = h.to_ext(header)
    assert all(isinstance(value, str) for value in ext.values())
    assert h.from_ext(type_, ext) == header
    if isinstance(header, h.SendMessageRequest):
        assert h.send_from_v2(h.send_v2_to_ext(header)) == header


@pytest.mark.parametrize("type_", ALL, ids=lambda type_: type_.__name__)
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_noise_in_fields_is_a_header_error_or_a_header(type_: type[h.Header], data: st.DataObject) -> None:
    names = [info.encode_name for info in msgspec.structs.fields(type_)]
    values = st.text(max_size=20) | st.sampled_from(
        ["", "null", "true", "1e999", "9" * 30, "-", "NaN", "0x1"]
    )
    ext = data.draw(st.dictionaries(st.sampled_from(names), values))
    try:
        assert isinstance(h.from_ext(type_, ext), type_)
    except HeaderError as error:
        assert type_.__name__ in str(error)


@pytest.mark.parametrize("type_", ALL, ids=lambda type_: type_.__name__)
def test_each_required_field_is_named_when_it_is_missing(type_: type[h.Header]) -> None:
    required = [info for info in msgspec.structs.fields(type_) if info.required]
    whole = {info.encode_name: "1" for info in required}
    assert isinstance(h.from_ext(type_, whole), type_)
    for info in required:
        rest = {name: value for name, value in whole.items() if name != info.encode_name}
        with pytest.raises(HeaderError, check=about(what=info.encode_name, value=None)):
            h.from_ext(type_, rest)


@pytest.mark.parametrize("value", ["", "x", "1.5", " 1", "2147483648", "-2147483649", "9" * 400])
def test_a_bad_number_is_named_with_its_value(value: str) -> None:
    with pytest.raises(HeaderError, check=about(what="queueId", value=value[:80])):
        h.from_ext(h.GetMinOffsetRequest, {"topic": "T", "queueId": value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        ("false", False),
        ("1", False),
        ("yes", False),
        ("", False),
    ],
)
def test_only_true_in_any_case_is_true(text: str, value: bool) -> None:
    ext = {"topic": "T", "queueId": "1", "committed": text}
    assert h.from_ext(h.GetMaxOffsetRequest, ext).committed is value
    assert ext["committed"] == text


def test_defaults_are_those_of_the_reference() -> None:
    assert h.from_ext(h.GetMaxOffsetRequest, {"topic": "T", "queueId": "1"}).committed
    back = h.from_ext(h.ConsumerSendMsgBackRequest, {"offset": "1", "group": "g", "delayLevel": "0"})
    assert (back.unit_mode, back.max_reconsume_times) == (False, None)
    send = h.send_from_v2(dict(zip("abcdefgh", ("g", "t", "d", "4", "0", "0", "1", "0"), strict=True)))
    assert (send.properties, send.reconsume_times, send.batch, send.broker_name) == (None, 0, False, None)


def test_fields_of_other_headers_are_ignored() -> None:
    header = h.from_ext(
        h.GetConsumerListByGroupRequest, {"consumerGroup": "g", "AccessKey": "x", "queueId": "y"}
    )
    assert header == h.GetConsumerListByGroupRequest(consumer_group="g")


def test_a_topic_named_null_stays_text() -> None:
    assert h.from_ext(h.GetRouteInfoRequest, {"topic": "null"}).topic == "null"


def test_names_on_the_wire_that_are_not_plain_camel_case() -> None:
    assert h.to_ext(h.UnregisterClientRequest(client_id="c")) == {"clientID": "c"}
    pull = h.PullMessageRequest(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        bulk_bytes=8,
        broker_name="b",
    )
    assert h.to_ext(pull).items() >= {"bulkBytes": "8", "bname": "b", "subVersion": "0"}.items()
