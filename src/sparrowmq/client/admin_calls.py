"""What the parts of `Admin` share: asking brokers and name servers. `Admin` itself has it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sparrowmq.client.instance import ClientInstance
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode


class AdminCalls(ABC):
    """Requests of an admin client that is started."""

    @abstractmethod
    def _running(self) -> ClientInstance:
        """The instance. Raises `InvalidStateError` unless running."""

    @abstractmethod
    async def _ask(self, address: str, code: RequestCode, header: headers.Header | None = None) -> bytes:
        """The body of a broker's or name server's answer."""

    @abstractmethod
    async def _cluster_masters(self, cluster: str | None) -> dict[str, str]:
        """Broker name to master address, of one cluster or of all."""

    @abstractmethod
    async def _group_masters(self, group: str) -> list[str]:
        """Masters that know the group."""

    @abstractmethod
    async def _master_of(self, queue: MessageQueue) -> str:
        """The master's address."""

    @abstractmethod
    async def _broker_address(self, broker: str) -> str:
        """The address of a broker's master, given its name; an address is taken as it is."""

    @abstractmethod
    async def topic_route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`."""

    @abstractmethod
    async def topic_list(self, *, system: bool = False) -> list[str]:
        """Names of all topics."""

    @abstractmethod
    async def group_list(self, *, system: bool = False) -> list[str]:
        """Names of all consumer groups."""

    @abstractmethod
    async def query_messages(self, topic: str, key: str, *, count: int) -> list[ReceivedMessage]:
        """Messages that have `key` among their keys."""


def masters_of(route: TopicRoute) -> dict[str, str]:
    """Broker name to master address."""
    return {broker.broker_name: broker.master for broker in route.brokers if broker.master is not None}
