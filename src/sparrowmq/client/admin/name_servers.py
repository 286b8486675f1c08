"""Name servers: key-value pairs, order configurations, write permissions; and permissions of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sparrowmq.client.admin.calls import AdminPart, apart
from sparrowmq.client.admin.types import NameServerStatus
from sparrowmq.client.base.settings import check_range
from sparrowmq.client.cluster.broker_api import check, command
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.names import check_topic
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of order configurations (client:F, updateOrderConf)."""
_SECONDS: Final = 5.0


class NameServerAdmin(AdminPart):
    """The name servers and their values. Changes are made on each of them."""

    async def status(self, address: str) -> NameServerStatus:
        """What one name server has: topics (code 206), brokers (106), settings (319), runtime data (28).

        Raises `TransportError` if it does not answer. Its settings may be refused (access control).
        """
        topics, brokers = await asyncio.gather(
            self._calls.ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
            self._calls.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO),
        )
        try:
            found = await self._calls.ask(address, RequestCode.GET_NAMESRV_CONFIG)
            settings = parse_properties(found.decode("utf-8", "replace"))
        except BrokerError:
            settings = None
        try:
            told = await self._calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            runtime = bodies.KVTable.decode(told).table
        except BrokerError:  # Apache's name servers do not know this request
            runtime = {}
        info = bodies.ClusterInfo.decode(brokers)
        addresses = {name: dict(one.addresses) for name, one in info.brokers.items()}
        names = frozenset((await apart(bodies.TopicList.decode, topics)).topic_list)
        return NameServerStatus(address, names, addresses, settings, runtime)

    async def topics(self) -> dict[str, set[str]]:
        """The names of all topics, by address of the name server that returned them (code 206).

        A name server that does not answer is left out. Raises `TransportError` when none does.
        """
        addresses = await self._calls.running().name_servers.known()
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answers = await asyncio.gather(
            *(self._calls.ask(at, code) for at in addresses), return_exceptions=True
        )
        found = {
            at: set((await apart(bodies.TopicList.decode, answer)).topic_list)
            for at, answer in zip(addresses, answers, strict=True)
            if isinstance(answer, bytes)
        }
        for answer in answers:
            if isinstance(answer, BaseException) and (not found or not isinstance(answer, Exception)):
                raise answer
        return found

    async def set_value(self, namespace: str, key: str, value: str) -> None:
        """Store a value on every name server."""
        header = headers.PutKVConfigRequest(namespace=namespace, key=key, value=value)
        await self._at_each(RequestCode.PUT_KV_CONFIG, header)

    async def value(self, namespace: str, key: str) -> str | None:
        """A value of the name servers, or None."""
        header = headers.GetKVConfigRequest(namespace=namespace, key=key)
        names = self._calls.running().name_servers
        answer = await names.call(command(RequestCode.GET_KV_CONFIG, header), _SECONDS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        check(answer, names.current, RequestCode.GET_KV_CONFIG)
        return headers.from_ext(headers.GetKVConfigResponse, answer.ext).value

    async def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; may be empty."""
        header = headers.GetKVListByNamespaceRequest(namespace=namespace)
        names = self._calls.running().name_servers
        answer = await names.call(command(RequestCode.GET_KVLIST_BY_NAMESPACE, header), _SECONDS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        body = check(answer, names.current, RequestCode.GET_KVLIST_BY_NAMESPACE).body
        return bodies.KVTable.decode(body).table if body else {}

    async def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value from every name server. Does nothing if there is none."""
        header = headers.DeleteKVConfigRequest(namespace=namespace, key=key)
        await self._at_each(RequestCode.DELETE_KV_CONFIG, header)

    async def order_conf(self, topic: str) -> dict[str, int]:
        """Broker name to number of queues of an ordered topic; empty for other topics."""
        check_topic(topic)
        text = await self.value(ORDER_NAMESPACE, topic) or ""
        try:
            pairs = (part.rsplit(":", 1) for part in text.split(";") if part)
            return {name: int(number) for name, number in pairs}
        except ValueError:
            why = f"the order configuration {text!r} of topic {topic!r} cannot be read"
            raise ClientError(why, what="order configuration", value=text) from None

    async def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered: its routes have exactly these numbers of queues by broker name, whether or
        not the brokers are available. With empty `queues` it becomes an ordinary topic again.
        """
        check_topic(topic)
        if not queues:
            await self.delete_value(ORDER_NAMESPACE, topic)
            return
        for name, number in queues.items():
            check_range(f"queues of {name}", number, 1, 65535)
        text = ";".join(f"{name}:{number}" for name, number in sorted(queues.items()))
        await self.set_value(ORDER_NAMESPACE, topic, text)

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Stop sends to a broker, so that it can be shut down. Returns how many of its topics changed.

        Lasts until `add_write_perm`, or until the broker registers changed topics.
        """
        header = headers.WipeWritePermRequest(broker_name=broker_name)
        answers = await self._at_each(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(
            headers.from_ext(headers.WipeWritePermResponse, answer.ext).wipe_topic_count for answer in answers
        )

    async def add_write_perm(self, broker_name: str) -> int:
        """Undo `wipe_write_perm`; how many topics changed."""
        header = headers.AddWritePermRequest(broker_name=broker_name)
        answers = await self._at_each(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(
            headers.from_ext(headers.AddWritePermResponse, answer.ext).add_topic_count for answer in answers
        )

    async def _at_each(self, code: RequestCode, header: headers.Header) -> list[Command]:
        """The answers of all name servers. Raises the first error after all were asked."""
        addresses = await self._calls.running().name_servers.known()
        ask = self._calls.running().brokers.ask
        answers = await asyncio.gather(
            *(ask(address, code, header, timeout=_SECONDS) for address in addresses), return_exceptions=True
        )
        found: list[Command] = []
        for answer in answers:
            if isinstance(answer, BrokerError) and answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found
