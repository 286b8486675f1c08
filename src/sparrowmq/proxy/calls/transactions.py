"""EndTransaction, and brokers' questions about transactions that their producer has not ended.

A broker asks a member of the producer group. The producer group of the API's messages is the topic, so the
proxy is a member for every topic for transactions that one of its clients publishes to, and passes the
question on to one of these clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextvars import Context
from functools import partial
from typing import Any, Final

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.errors import ProxyRefusal, SparrowError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest, EndTransactionRequest
from sparrowmq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.base.checks import topic_name
from sparrowmq.proxy.base.converting import resource
from sparrowmq.proxy.base.handles import HalfPlace, parse_transaction_id
from sparrowmq.proxy.base.refusals import ok
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.clients import Stream
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, Resolution, Source, v2

_log = logging.getLogger("sparrowmq.proxy")
_RESOLUTIONS: Final = {
    Resolution.COMMIT: TRANSACTION_COMMIT,
    Resolution.ROLLBACK: TRANSACTION_ROLLBACK,
}
_TYPES: Final = ("TRANSACTION", "MIXED")
REAL_TOPIC: Final = "REAL_TOPIC"
QUESTIONS_MAX: Final = 64
"""Questions whose messages are being made. Brokers ask a dropped one again."""
UNLISTED_MAX: Final = 32
"""Topics of a client's settings that are looked up without a look at the list of all topics."""


class _Publisher:
    """A topic for transactions as a producer of the client instance: its heartbeats name it."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topics(self) -> Iterable[str]:
        """The topic, so that its route is kept fresh."""
        return (self._topic,)

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """Routes do not matter here."""


async def _as_the_proxy(work: Coroutine[Any, Any, object]) -> None:
    """Run this with the proxy's own account, not with that of the caller."""
    await asyncio.get_running_loop().create_task(work, context=Context())


class ProxyTransactions:
    """Ends transactions, and passes brokers' questions to clients."""

    def __init__(self, brokers: Brokers, answers: MessageAnswers, tasks: TaskGroup) -> None:
        self._brokers = brokers
        self._answers = answers
        self._tasks = tasks
        self._asking = 0
        self._streams: dict[str, dict[str, Stream]] = {}
        """The streams of the clients that publish to each topic for transactions, by client."""

    async def publishes(self, client_id: str, topics: frozenset[str], stream: Stream) -> None:
        """A client publishes to these topics, and to no other ones.

        Questions contain half messages, so only clients that may send to a topic get them; others are
        refused.
        """
        for topic in [name for name, clients in self._streams.items() if client_id in clients]:
            if topic not in topics:
                await self._leave(topic, client_id)
        for topic in await self._to_look_at(topics):
            if topic not in self._streams and not await self._is_for_transactions(topic):
                continue
            if not await self._brokers.may_publish(topic):
                raise ProxyRefusal(Code.FORBIDDEN, f"the account may not send to the topic {topic!r}")
            await self._join(topic, client_id, stream)

    async def _to_look_at(self, topics: frozenset[str]) -> list[str]:
        """The topics whose type is asked for. Of many unknown ones, those that name servers list: settings
        with thousands of names would else cause a request for each.
        """
        known = [topic for topic in topics if topic in self._streams]
        others = sorted(topics.difference(known))
        if len(others) > UNLISTED_MAX:
            try:
                listed = await self._brokers.listed()
            except SparrowError as error:
                _log.info("the topics of %d names are not known: %s", len(others), error)
                listed = frozenset()
            others = [topic for topic in others if topic in listed]
        return known + others

    async def _is_for_transactions(self, topic: str) -> bool:
        try:
            return await self._brokers.message_type(topic) in _TYPES
        except SparrowError as error:
            _log.info("cannot find out whether %s is a topic for transactions: %s", topic, error)
            return False

    async def _join(self, topic: str, client_id: str, stream: Stream) -> None:
        clients = self._streams.setdefault(topic, {})
        clients[client_id] = stream
        instance = self._brokers.instance
        if instance.producer(topic) is None:
            instance.register_producer(topic, _Publisher(topic))
            instance.checks.register(topic, self._asked, as_stored=True)
            await _as_the_proxy(instance.heartbeat())

    async def _leave(self, topic: str, client_id: str) -> None:
        clients = self._streams[topic]
        clients.pop(client_id, None)
        if not clients:
            del self._streams[topic]
            self._brokers.instance.checks.unregister(topic)
            await _as_the_proxy(self._brokers.instance.unregister(producer=topic))

    def _asked(self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage) -> None:
        """A broker asks how a transaction ended: a client will answer by ending it."""
        if self._asking < QUESTIONS_MAX:
            self._asking += 1
            self._tasks.start(self._ask(address, header, message), "question about a transaction")

    async def _ask(
        self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage
    ) -> None:
        try:
            await self._pass_on(address, header, message)
        finally:
            self._asking -= 1

    async def _pass_on(
        self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage
    ) -> None:
        topic = message.properties.get(REAL_TOPIC, message.topic)
        broker_name = header.broker_name or self._name_of(address)
        half = HalfPlace(
            broker_name, header.tran_state_table_offset, header.commit_log_offset, message.message_id
        )
        kind = partial(v2.RecoverOrphanedTransactionCommand, transaction_id=half.encode())
        question = await self._answers.of(kind, message, resource(topic))
        command = v2.TelemetryCommand(recover_orphaned_transaction_command=question)
        for stream in reversed(self._streams.get(topic, {}).values()):
            if stream.write(command):
                return
        _log.info(
            "%s asks about a transaction of %s, to which no client publishes now; it will ask again",
            address,
            topic,
        )

    def _name_of(self, address: str) -> str:
        """The name of the broker at `address`; brokers before 5.0 do not send it."""
        for topic in self._streams:
            route = self._brokers.instance.routes.get(topic)
            for broker in route.brokers if route is not None else ():
                if address in broker.addresses.values():
                    return broker.broker_name
        return ""

    async def end_transaction(self, caller: GrpcCaller, request: Any) -> Any:
        """Commit or roll back a half message; another resolution leaves it for the next question."""
        topic = topic_name(request.topic)
        if not request.transaction_id.strip():
            raise ProxyRefusal(Code.INVALID_TRANSACTION_ID, "the transaction id is empty")
        half = parse_transaction_id(request.transaction_id)
        header = EndTransactionRequest(
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, TRANSACTION_NONE),
            from_transaction_check=request.source == Source.SOURCE_SERVER_CHECK,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            topic=topic,
            broker_name=half.broker_name,
        )
        address = await self._brokers.master_for(half.broker_name, topic)
        await self._brokers.end_transaction(address, header)
        return v2.EndTransactionResponse(status=ok())
