"""Producers that are connected, and idempotent ones, which only SparrowMQ's brokers support."""

from __future__ import annotations

import asyncio

from sparrowmq.client.admin.calls import AdminPart, apart, masters_of
from sparrowmq.client.admin.types import GroupMemberInfo, ProducerState
from sparrowmq.core.errors import BrokerError, ClientError, NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.producer_mark import family_of


class ProducerAdmin(AdminPart):
    """The producers, above all idempotent ones."""

    async def end(
        self, topic: str, family: str, epoch: int = 0, *, note: str = ""
    ) -> dict[str, tuple[int, str]]:
        """End the epochs before `epoch` of all producers `<family>-…` in a topic. Returns the result by
        broker.

        The brokers forget the sequence numbers of those epochs and refuse late messages (90004). The ended
        epoch never decreases: the result is the one in force, with its note (up to 200 characters). Epoch 0
        only queries. Apache's brokers, which do not know idempotent producers, are left out. Raises
        `BrokerError`.
        """
        check_topic(topic)
        header = call_headers.EndProducersRequest(topic=topic, family=family, epoch=epoch, note=note)
        masters = masters_of(await self._calls.route(topic))
        answers = await asyncio.gather(*(self._end_at(address, header) for address in masters.values()))
        return {
            name: (answer.epoch, answer.note)
            for name, answer in zip(masters, answers, strict=True)
            if answer is not None
        }

    async def state(self, queue: MessageQueue, producer: str) -> ProducerState | None:
        """Which numbers of an idempotent producer a queue has, also a queue that its topic no longer has.

        None if the broker knows the producer not, or no idempotent producers. Raises `NoRouteError`,
        `BrokerError`.
        """
        check_topic(queue.topic)
        master = masters_of(await self._calls.route(queue.topic)).get(queue.broker_name)
        if master is None:
            raise NoRouteError(
                f"broker {queue.broker_name!r} has no master that serves topic {queue.topic!r}",
                topic=queue.topic,
            )
        header = call_headers.EndProducersRequest(
            topic=queue.topic,
            family=family_of(producer) or producer,
            producer=producer,
            queue_id=queue.queue_id,
        )
        answer = await self._end_at(master, header)
        state = None if answer is None else answer.state
        return None if state is None else ProducerState(state.epoch, state.last, state.begins_at)

    async def connections(self, group: str, topic: str) -> list[GroupMemberInfo]:
        """Producers of `group` at a broker of `topic`. Raises `BrokerError` when there are none."""
        check_group(group)
        masters = list(masters_of(await self._calls.route(topic)).values())
        if not masters:
            text = f"no broker of topic {topic!r} has a master; check that they are running"
            raise ClientError(text, what="topic", value=topic)
        header = headers.GetProducerConnectionListRequest(producer_group=group)
        body = await self._calls.ask(masters[0], RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        found = (await apart(bodies.ProducerConnection.decode, body)).connection_set
        return [GroupMemberInfo(c.client_id, c.client_addr, c.language, c.version) for c in found]

    async def _end_at(
        self, address: str, header: call_headers.EndProducersRequest
    ) -> bodies.ProducersEnd | None:
        try:
            return bodies.ProducersEnd.decode(
                await self._calls.ask(address, RequestCode.END_PRODUCERS, header)
            )
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
