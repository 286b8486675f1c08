"""Closed epochs of idempotent producers. Only SparrowMQ's brokers support them."""

from __future__ import annotations

import asyncio

from sparrowmq.client.admin.calls import AdminCalls, masters_of
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.names import check_topic
from sparrowmq.protocol import bodies, call_headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode


class ProducerAdmin(AdminCalls):
    """The part of `Admin` for idempotent producers."""

    async def end_producers(
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
        masters = masters_of(await self.topic_route(topic))
        answers = await asyncio.gather(*(self._end_at(address, header) for address in masters.values()))
        return {
            name: (answer.epoch, answer.note)
            for name, answer in zip(masters, answers, strict=True)
            if answer is not None
        }

    async def _end_at(
        self, address: str, header: call_headers.EndProducersRequest
    ) -> bodies.ProducersEnd | None:
        try:
            return bodies.ProducersEnd.decode(await self._ask(address, RequestCode.END_PRODUCERS, header))
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
