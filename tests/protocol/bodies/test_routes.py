"""Routes and clusters: recorded answers, both key forms, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies import ClusterInfo, member_group_to_json, route_from_json, route_to_json
from sparrowmq.protocol.bodies.routes import QUEUES_MAX
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.java_json import loads

ROUTE = TopicRoute(
    queues=(QueueData("broker-a", 4, 4, 6),),
    brokers=(BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}),),
)
STRICT = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNTS = st.integers(0, QUEUES_MAX)
FLAGS = st.integers(0, 2**31 - 1)
ROUTES = st.builds(
    TopicRoute,
    st.lists(st.builds(QueueData, NAMES, COUNTS, COUNTS, st.integers(0, 15), FLAGS), max_size=3).map(tuple),
    st.lists(
        st.builds(BrokerData, NAMES, NAMES, st.dictionaries(st.integers(0, 2**40), NAMES, max_size=3)),
        max_size=3,
    ).map(tuple),
    st.none() | st.sampled_from(["a:4", "broker-a:4;broker-b:12", "a:1;"]),
)


def test_routes_are_written_as_the_reference_writes_them() -> None:
    assert route_to_json(ROUTE) == STRICT
    bare = STRICT.replace(b'"0":', b"0:").replace(b'"1":', b"1:")
    assert route_to_json(ROUTE, bare_keys=True) == bare
    assert route_from_json(STRICT) == route_from_json(bare) == ROUTE


@given(ROUTES, st.booleans())
def test_what_is_written_is_read_back(route: TopicRoute, bare_keys: bool) -> None:
    assert route_from_json(route_to_json(route, bare_keys=bare_keys)) == route


def test_every_recorded_route_is_read_and_written_back() -> None:
    seen = bare = 0
    for exchange, answer in recorded.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC):
        if answer.code or b"topicQueueMappingByBroker" in answer.body:
            continue
        old = b"{0:" in answer.body
        assert route_to_json(route_from_json(answer.body), bare_keys=old) == answer.body, exchange
        seen += 1
        bare += old
    assert seen > 40
    assert bare > 5


def test_routes_of_static_topics_are_read() -> None:
    bodies = [
        answer.body
        for _, answer in recorded.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        if b"topicQueueMappingByBroker" in answer.body
    ]
    assert bodies
    for body in bodies:
        assert route_from_json(body).publish_queues("T")


@pytest.mark.parametrize(
    "conf", ["a", "a:", ":4", "a:x", "a:-1", "a:4;;b:4", "a:4,b:4", "a:4:5", "a:123456", "a:4;b", " "]
)
def test_an_order_configuration_that_is_none_is_refused(conf: str) -> None:
    with pytest.raises(BodyError, match="orderTopicConf"):
        route_from_json(b'{"orderTopicConf":"%b"}' % conf.encode())


def test_an_empty_order_configuration_is_none() -> None:
    assert route_from_json(b'{"orderTopicConf":""}').order_topic_conf is None
    ordered = route_from_json(b'{"orderTopicConf":"a:2;b:1"}')
    assert [(q.broker_name, q.queue_id) for q in ordered.publish_queues("T")] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b'{"brokerDatas":[{}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":5}}]}',
        b'{"queueDatas":[{"brokerName":"b"}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2147483648}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":100000}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":2147483647}]}',
        b'{"queueDatas":5}',
        b"[]",
    ],
)
def test_routes_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        route_from_json(data)


def test_every_recorded_cluster_is_read_and_written_with_the_same_meaning() -> None:
    seen = 0
    for exchange, answer in recorded.answers(RequestCode.GET_BROKER_CLUSTER_INFO):
        if answer.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}':
            continue
        info = ClusterInfo.decode(answer.body)
        assert info.brokers["broker-a"].master == "127.0.0.1:21911", exchange
        assert info.clusters == {"DefaultCluster": ["broker-a"]}, exchange
        assert loads(info.encode()) == loads(answer.body), exchange
        assert ClusterInfo.decode(info.encode()) == info, exchange
        seen += 1
    assert seen


def test_rivals_of_brokers_are_in_a_field_of_their_own() -> None:
    assert ClusterInfo().encode() == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    info = ClusterInfo(rivals={"a": {0: "h:2"}})
    assert loads(info.encode())["sparrowRivals"] == {"a": {"0": "h:2"}}
    assert ClusterInfo.decode(info.encode()) == info


def test_the_recorded_member_group_is_written_with_the_same_meaning() -> None:
    ((_, answer),) = recorded.answers(RequestCode.GET_BROKER_MEMBER_GROUP)
    broker = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:21911"})
    assert loads(member_group_to_json(broker)) == loads(answer.body)
