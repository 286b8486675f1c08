"""Locks of queues at their brokers: only the holder may consume a queue in order (client:C.8).

The broker grants a lock for 60 s and the client relies on it for 30 s, so it must be renewed; `OwnedQueues`
selects the queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from sparrowmq.client.cluster.broker_api import GenerationOf, command, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, wire_queues
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

LOCK_TIMEOUT: Final = 1.0
"""Seconds for one request (client:C-26, C-29)."""


class QueueLocks:
    """Locks and unlocks queues for one member of `group`. In a managed group, requests carry the queue's
    generation, and brokers give locks only to its owner.
    """

    def __init__(self, instance: ClientInstance, group: str, generation_of: GenerationOf) -> None:
        self._instance = instance
        self._group = group
        self._occasional = OccasionalLog(log)
        self._asked: set[MessageQueue] = set()
        self._generation_of = generation_of

    @property
    def asked(self) -> frozenset[MessageQueue]:
        """Queues that this member has locked, or may have locked because the response is pending."""
        return frozenset(self._asked)

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock `queues`, or renew their locks: (granted, refused). Sends one request to each master
        (client:C-28).

        Queues of a broker that did not answer are in neither: their state does not change (client:C-31).
        """
        asked = list(_by_broker(queues).items())
        for _, own in asked:
            self._asked.update(own)
        answers = await asyncio.gather(*(self._lock_at(name, own) for name, own in asked))
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for (_, own), answer in zip(asked, answers, strict=True):
            if answer is not None:
                granted |= answer & set(own)
                refused |= set(own) - answer
        self._asked -= refused
        return granted, refused

    async def unlock(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        """Unlock `queues`, one-way unless `confirmed` (client:C-29). Failures are logged."""
        asked = _by_broker(queues).items()
        for _, own in asked:
            self._asked.difference_update(own)
        await asyncio.gather(*(self._unlock_at(name, own, confirmed) for name, own in asked))

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        asked = list(queues)
        known = [self._generation_of(queue) for queue in asked]
        generations = None if None in known else [number for number in known if number is not None]
        body = LockBatchRequestBody(
            self._instance.client_id, self._group, wire_queues(asked), generations=generations
        )
        return body.encode()

    async def _lock_at(self, name: str, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        try:
            address = need_address(self._instance.routes.master(name), queues[0], "master")
            code, body = RequestCode.LOCK_BATCH_MQ, self._body(queues)
            answer = await self._instance.brokers.ask(address, code, body=body, timeout=LOCK_TIMEOUT)
            return set(LockBatchResponseBody.decode(answer.body).queues)
        except SparrowError as error:
            is_fenced = isinstance(error, BrokerError) and error.code == ResponseCode.GENERATION_FENCED
            text = f"group {self._group} could not lock {len(queues)} queues at {name}: {error}"
            self._occasional.write(logging.WARNING, f"lock {name}", text)
            return set() if is_fenced else None  # all of them now have other owners

    async def _unlock_at(self, name: str, queues: list[MessageQueue], confirmed: bool) -> None:
        try:
            address = need_address(self._instance.routes.master(name), queues[0], "master")
            code, body = RequestCode.UNLOCK_BATCH_MQ, self._body(queues)
            if confirmed:
                await self._instance.brokers.ask(address, code, body=body, timeout=LOCK_TIMEOUT)
            else:
                await self._instance.remoting.notify(address, command(code, body=body), LOCK_TIMEOUT)
        except SparrowError as error:
            log.info("%s could not be notified that %d queues are free: %s", name, len(queues), error)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
