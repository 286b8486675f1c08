"""How often brokers permit a consumer group to retry a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import SparrowError, TransportError
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.headers import GetSubscriptionGroupConfigRequest

if TYPE_CHECKING:
    from sparrowmq.client.cluster.instance import ClientInstance

RETRIES_DEFAULT: Final = 16
"""RocketMQ's default limit of a group (`retryMaxTimes`)."""
FRESH_SECONDS: Final = 60.0
ASK_SECONDS: Final = 3.0


class _Asked(NamedTuple):
    at: float
    limit: asyncio.Future[int | None]


class GroupLimits:
    """The limit of one group by the address of a broker, asked for again after `FRESH_SECONDS` (352)."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._asked: dict[str, _Asked] = {}

    async def retries_max(self, address: str) -> int | None:
        """The group's `retryMaxTimes` at a broker; RocketMQ's default if the broker does not say it. None if
        the broker does not answer: then a message must not become a dead letter because of a guess.
        """
        now = self._instance.clock.monotonic()
        asked = self._asked.get(address)
        if asked is None or now - asked.at >= FRESH_SECONDS:
            fresh = {at: one for at, one in self._asked.items() if now - one.at < FRESH_SECONDS}
            asked = _Asked(now, asyncio.ensure_future(self._ask(address)))
            self._asked = {**fresh, address: asked}
        found = await asyncio.shield(asked.limit)
        if found is None and self._asked.get(address) is asked:
            del self._asked[address]
        return found

    async def _ask(self, address: str) -> int | None:
        header = GetSubscriptionGroupConfigRequest(group=self._group)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        try:
            answer = await self._instance.brokers.ask(address, code, header, timeout=ASK_SECONDS)
            return SubscriptionGroupConfig.decode(answer.body).retry_max_times
        except TransportError:
            return None
        except SparrowError:  # it may require a right for the request
            return RETRIES_DEFAULT
