"""The rights that each request to a name server needs: one row per request code; see `core.rights`.

A name server has no accounts, as in RocketMQ: whoever reaches its port may make each of these requests, with
and without users and policies at the brokers. A name server is not created if a handler has no row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.core.rights import Named, Right, actions
from sparrowmq.protocol.codes import RequestCode as Code

_OPEN: Final = Right(actions=actions(), free=True)
_OPEN_TOPIC: Final = Right(actions=actions(), fields=(Named("Topic", "topic"),), free=True)

RIGHTS: Final[Mapping[int, Right]] = {
    Code.GET_BROKER_RUNTIME_INFO: _OPEN,
    # Keys and values
    Code.PUT_KV_CONFIG: _OPEN,
    Code.GET_KV_CONFIG: _OPEN,
    Code.DELETE_KV_CONFIG: _OPEN,
    Code.GET_KVLIST_BY_NAMESPACE: _OPEN,
    # Brokers
    Code.REGISTER_BROKER: _OPEN,
    Code.UNREGISTER_BROKER: _OPEN,
    Code.QUERY_DATA_VERSION: _OPEN,
    Code.BROKER_HEARTBEAT: _OPEN,
    Code.GET_BROKER_CLUSTER_INFO: _OPEN,
    Code.GET_BROKER_MEMBER_GROUP: _OPEN,
    Code.WIPE_WRITE_PERM_OF_BROKER: _OPEN,
    Code.ADD_WRITE_PERM_OF_BROKER: _OPEN,
    # Topics
    Code.GET_ROUTEINFO_BY_TOPIC: _OPEN_TOPIC,
    Code.REGISTER_TOPIC_IN_NAMESRV: _OPEN_TOPIC,
    Code.DELETE_TOPIC_IN_NAMESRV: _OPEN_TOPIC,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _OPEN,
    Code.GET_TOPICS_BY_CLUSTER: _OPEN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _OPEN,
    Code.GET_UNIT_TOPIC_LIST: _OPEN,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _OPEN,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _OPEN,
    # Settings
    Code.UPDATE_NAMESRV_CONFIG: _OPEN,
    Code.GET_NAMESRV_CONFIG: _OPEN,
}
