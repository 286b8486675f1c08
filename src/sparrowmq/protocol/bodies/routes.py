"""Routes of topics and the brokers of clusters (remoting:4.1)."""

from __future__ import annotations

import re
from typing import Final, Self

import msgspec
from msgspec import field

from sparrowmq.core.errors import BodyError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies.base import Body, Int32, without_nulls
from sparrowmq.protocol.java_json import dumps

_ORDER_CONF = re.compile(r"[^:;]+:\d{1,5}(;[^:;]+:\d{1,5})*;?")


QUEUES_MAX: Final = 99_999
"""Maximum queues of one topic on one broker, as in order configurations: clients create an object
for each.
"""


class _WireBroker(Body, frozen=True):
    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False

    def core(self) -> BrokerData:
        return BrokerData(self.cluster, self.broker_name, self.broker_addrs)


class _WireQueueData(Body, frozen=True):
    broker_name: str
    perm: Int32
    read_queue_nums: Int32
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0

    def core(self) -> QueueData:
        most = max(self.read_queue_nums, self.write_queue_nums)
        if most > QUEUES_MAX:
            raise BodyError(f"{most} queues on broker {self.broker_name[:80]!r}, the limit is {QUEUES_MAX}")
        return QueueData(
            self.broker_name, self.read_queue_nums, self.write_queue_nums, self.perm, self.topic_sys_flag
        )


class _WireRoute(Body, frozen=True):
    broker_datas: list[_WireBroker] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[_WireQueueData] = field(default_factory=list)


class _WireCluster(Body, frozen=True):
    broker_addr_table: dict[str, _WireBroker] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
    sparrow_rivals: dict[str, dict[int, str]] | None = None


def _wire_broker(broker: BrokerData) -> _WireBroker:
    return _WireBroker(broker.addresses, broker.broker_name, broker.cluster)


def route_to_json(route: TopicRoute, *, bare_keys: bool = False) -> bytes:
    """A route as the response to code 105; `bare_keys` for requests of versions below 401 (remoting:1.5)."""
    wire = _WireRoute(
        broker_datas=[_wire_broker(broker) for broker in route.brokers],
        order_topic_conf=route.order_topic_conf,
        queue_datas=[
            _WireQueueData(q.broker_name, q.perm, q.read_queue_nums, q.topic_sys_flag, q.write_queue_nums)
            for q in route.queues
        ],
    )
    return dumps(without_nulls(msgspec.to_builtins(wire)), bare_keys=bare_keys)


def route_from_json(data: bytes) -> TopicRoute:
    """The route in a response to code 105. Raises `JavaJsonError` or `BodyError`."""
    return _core(_WireRoute.decode(data))


def route_from_request(data: bytes) -> TopicRoute:
    """The route in a request with code 217, within the bounds of requests. Raises the same errors."""
    return _core(_WireRoute.decode_request(data))


def _core(wire: _WireRoute) -> TopicRoute:
    order = wire.order_topic_conf or None
    if order is not None and not _ORDER_CONF.fullmatch(order):
        raise BodyError(f"orderTopicConf {order[:80]!r} is not `broker:queues;broker:queues`")
    return TopicRoute(
        queues=tuple(queue.core() for queue in wire.queue_datas),
        brokers=tuple(broker.core() for broker in wire.broker_datas),
        order_topic_conf=order,
    )


def member_group_to_json(broker: BrokerData) -> bytes:
    """Response to GET_BROKER_MEMBER_GROUP (901)."""
    members = {
        "brokerAddrs": broker.addresses,
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }
    return dumps({"brokerMemberGroup": members})


class ClusterInfo(msgspec.Struct, frozen=True):
    """Brokers by name, and broker names by cluster (106)."""

    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)
    rivals: dict[str, dict[int, str]] = field(default_factory=dict)
    """By name and id, the address of another live broker that claims both; from SparrowMQ's name servers."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode JSON `data`. Raises `JavaJsonError` or `BodyError`."""
        wire = _WireCluster.decode(data)
        brokers = {name: broker.core() for name, broker in wire.broker_addr_table.items()}
        return cls(brokers, wire.cluster_addr_table, wire.sparrow_rivals or {})

    def encode(self) -> bytes:
        """Compact JSON."""
        brokers = {name: _wire_broker(broker) for name, broker in self.brokers.items()}
        return _WireCluster(brokers, self.clusters, self.rivals or None).encode()
