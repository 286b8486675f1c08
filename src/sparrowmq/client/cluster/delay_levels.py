"""The delay levels of brokers: how long a message waits that a consumer sends back."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sparrowmq.client.cluster.broker_api import BrokerRequests
from sparrowmq.core.delay import DEFAULT_LEVELS, DelayLevels
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol.codes import RequestCode

log = logging.getLogger("sparrowmq.client")

SETTING: Final = "messageDelayLevel"
ASK_SECONDS: Final = 3.0


class BrokerLevels:
    """Delay levels by the address of a broker. Each is asked for its settings (26) once per connection.

    RocketMQ's default levels are assumed for a broker that does not say its own: it may require a right for
    the request.
    """

    def __init__(self, brokers: BrokerRequests) -> None:
        self._brokers = brokers
        self._asked: dict[str, asyncio.Future[DelayLevels | None]] = {}

    async def level_after(self, address: str, seconds: float) -> int:
        """The broker's level with the shortest delay of at least `seconds`, or else with the longest."""
        asked = self._asked.get(address)
        if asked is None:
            asked = self._asked[address] = asyncio.ensure_future(self._ask(address))
        levels = await asyncio.shield(asked)
        if levels is None and self._asked.get(address) is asked:
            del self._asked[address]
        return (levels or DEFAULT_LEVELS).level_after(seconds)

    def forget(self, address: str) -> None:
        """The connection was lost: the broker may come back with other levels."""
        self._asked.pop(address, None)

    async def _ask(self, address: str) -> DelayLevels | None:
        """The broker's levels, or the default ones if it does not say them. None: it did not answer."""
        try:
            answer = await self._brokers.ask(address, RequestCode.GET_BROKER_CONFIG, timeout=ASK_SECONDS)
            settings = parse_properties(answer.body.decode("utf-8", "replace"))
            return DelayLevels.parse(settings[SETTING])
        except (BrokerError, KeyError, ValueError) as error:
            log.info("%s did not say its delay levels; RocketMQ's are assumed: %s", address, error)
            return DEFAULT_LEVELS
        except SparrowError:
            return None
