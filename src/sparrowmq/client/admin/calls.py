"""Requests to brokers and name servers, shared by the parts of `Admin`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from sparrowmq.protocol.bodies import ClusterInfo


class AdminCalls(ABC):
    """The requests of a started admin client."""

    @abstractmethod
    def _running(self) -> ClientInstance:
        """The instance. Raises `InvalidStateError` unless the client runs."""

    @abstractmethod
    async def _ask(self, address: str, code: RequestCode, header: headers.Header | None = None) -> bytes:
        """The body of the response of a broker or name server."""

    @abstractmethod
    async def _cluster_masters(self, cluster: str | None) -> dict[str, str]:
        """Broker name to master address, of one cluster or of all."""

    @abstractmethod
    async def _group_masters(self, group: str) -> list[str]:
        """The masters that know the group."""

    @abstractmethod
    async def _master_of(self, queue: MessageQueue) -> str:
        """The address of the master."""

    @abstractmethod
    async def _broker_address(self, broker: str) -> str:
        """The address of a broker's master by broker name; an address is returned unchanged."""

    @abstractmethod
    async def cluster_info(self) -> ClusterInfo:
        """Brokers by name, broker names by cluster."""

    @abstractmethod
    async def topic_route(self, topic: str) -> TopicRoute:
        """The queues and brokers of `topic`."""

    @abstractmethod
    async def topic_list(self, *, system: bool = False) -> list[str]:
        """The names of all topics."""

    @abstractmethod
    async def group_list(self, *, system: bool = False) -> list[str]:
        """The names of all consumer groups."""

    @abstractmethod
    async def query_messages(
        self, topic: str, key: str, *, count: int, decompress: bool
    ) -> list[ReceivedMessage]:
        """The messages that have `key` among their keys."""


def masters_of(route: TopicRoute) -> dict[str, str]:
    """Broker name to master address."""
    return {broker.broker_name: broker.master for broker in route.brokers if broker.master is not None}
