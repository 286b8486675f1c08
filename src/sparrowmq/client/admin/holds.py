"""Holds: brokers keep messages until a group has consumed them. Only SparrowMQ's brokers support holds."""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.admin.calls import AdminPart, apart, at_each, masters_of
from sparrowmq.client.admin.types import HoldStatus
from sparrowmq.client.base.settings import check_range
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.names import check_group, check_topic
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

HOURS: Final = 168


class HoldAdmin(AdminPart):
    """The holds of messages."""

    async def set(self, topic: str, group: str, *, hours: int = HOURS, size_max: int = 0) -> None:
        """Create or change a hold: all masters of `topic` keep its messages until `group` has consumed them.

        A hold takes precedence over `fileReservedTime` and over a full disk. It ends, and the broker logs an
        error, when the oldest message has waited `hours`, or when `size_max` bytes of the log (0: no limit)
        follow it. Raises `ClientError` for Apache's brokers, which do not support holds.
        """
        check_topic(topic)
        check_group(group)
        check_range("hours", hours, 1, call_headers.HOLD_HOURS_MAX)
        check_range("size_max", size_max, 0, call_headers.HOLD_SIZE_MAX)
        header = call_headers.RetentionHoldRequest(topic=topic, group=group, hours=hours, size_max=size_max)
        await self._tell_holders(topic, RequestCode.PUT_RETENTION_HOLD, header)

    async def delete(self, topic: str) -> None:
        """Remove a hold from all masters of `topic`; its messages are then deleted like others."""
        check_topic(topic)
        header = call_headers.RetentionHoldRequest(topic=topic)
        await self._tell_holders(topic, RequestCode.DELETE_RETENTION_HOLD, header)

    async def _holds_at(self, address: str) -> list[bodies.RetentionHold]:
        try:
            body = await self._calls.ask(address, RequestCode.GET_RETENTION_HOLDS)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return []
            raise
        return (await apart(bodies.RetentionHoldList.decode, body)).holds

    async def _tell_holders(self, topic: str, code: RequestCode, header: headers.Header) -> None:
        masters = masters_of(await self._calls.route(topic))
        try:
            await at_each({name: self._calls.ask(at, code, header) for name, at in masters.items()})
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            raise ClientError(
                f"a broker of {topic!r} is not a SparrowMQ broker and cannot hold messages; raise its "
                f"fileReservedTime instead"
            ) from error

    async def list(self) -> list[HoldStatus]:
        """All holds of all brokers, by topic and broker; Apache's brokers have none."""
        masters = await self._calls.cluster_masters(None)
        answers = await asyncio.gather(*(self._holds_at(address) for address in masters.values()))
        found = [
            HoldStatus(
                topic=hold.topic,
                broker_name=name,
                group=hold.group,
                hours=hold.hours,
                size_max=hold.size_max,
                messages=hold.messages,
                oldest_ms=None if hold.stored < 0 else hold.stored,
                overrun=hold.overrun,
            )
            for name, holds in zip(masters, answers, strict=True)
            for hold in holds
        ]
        return sorted(found, key=lambda hold: (hold.topic, hold.broker_name))
