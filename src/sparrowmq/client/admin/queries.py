"""Message queries at brokers: by key, by unique key, by offset id (client:E.5).

A broker's index has only hashes and returns all messages with the same hash; this module removes those with
other keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from sparrowmq.client.cluster.broker_api import check
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.namespaces import unwrap_messages
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    NoRouteError,
    RecordError,
    SparrowError,
)
from sparrowmq.core.ids import offset_message_id as offset_id_of
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import BrokerData
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import StoredRecord, decode_records, to_message

QUERY_TIMEOUT: Final = 18.0
"""Seconds for the key search of one broker (client:E-51)."""
VIEW_TIMEOUT: Final = 6.0
KEY: Final = "K"
UNIQUE_KEY: Final = "U"
TIME_MAX: Final = 2**63 - 1
COUNT_MAX: Final = 2**31 - 1


async def query(
    instance: ClientInstance,
    topic: str,
    key: str,
    *,
    count: int,
    span_ms: tuple[int, int],
    unique: bool,
    decompress: bool = True,
) -> list[ReceivedMessage]:
    """Messages of the topic that have the key, oldest first, from every broker in its route.

    A broker that finds nothing counts as empty. Another error of a broker is raised if no broker found
    anything.
    """
    route = await instance.find_route(topic)
    if route is None:
        raise NoRouteError(
            f"no broker serves topic {topic!r}; see the names with `sparrow topic list`", topic=topic
        )
    header = headers.QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=count,
        begin_timestamp=span_ms[0],
        end_timestamp=span_ms[1],
        index_type=UNIQUE_KEY if unique else KEY,
    )
    ext = {**headers.to_ext(header), "_UNIQUE_KEY_QUERY": "true" if unique else "false"}
    asked = [_ask(instance, topic, broker, ext, decompress) for broker in route.brokers]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    wanted = _has_unique_key(key) if unique else _has_key(key)
    found = [
        message
        for answer in answers
        if not isinstance(answer, BaseException)
        for message in answer
        if message.topic == topic and wanted(message)
    ]
    if failures and not found:
        raise failures[0]
    return sorted(found, key=lambda message: (message.store_timestamp, message.physical_offset))


async def _ask(
    instance: ClientInstance, topic: str, broker: BrokerData, ext: dict[str, str], decompress: bool
) -> list[ReceivedMessage]:
    address = next(iter(broker.addresses.values()))
    if broker.master is not None:
        address = await instance.master_of(MessageQueue(topic, broker.broker_name, 0)) or address
    request = Command(RequestCode.QUERY_MESSAGE, ext=ext)
    try:
        answer = check(await instance.remoting.call(address, request, QUERY_TIMEOUT), address, request.code)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    records = decode_records(answer.body)
    found = [to_message(record, broker.broker_name, decompress=decompress) for record in records]
    unwrap_messages(instance.namespace, found)
    return found


def _has_key(key: str) -> Callable[[ReceivedMessage], bool]:
    return lambda message: key in message.keys


def _has_unique_key(key: str) -> Callable[[ReceivedMessage], bool]:
    return lambda message: message.message_id == key


async def by_offset_id(
    instance: ClientInstance,
    offset_message_id: str,
    topic: str,
    others: Callable[[], Awaitable[Iterable[BrokerData]]],
    *,
    decompress: bool = True,
) -> ReceivedMessage | None:
    """The message with an offset id, from the broker whose address it contains; None if it was deleted.

    If that broker cannot be connected it may have moved: `others`, those of `topic` or all, are asked for the
    message that was stored at that address. Raises `ClientError` for an invalid id, and `ConnectError` if
    none has it.
    """
    try:
        host, port, offset = parse_offset_message_id(offset_message_id)
    except RecordError as error:
        raise ClientError(str(error)) from None
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    header = headers.ViewMessageRequest(offset=offset, topic=topic)
    request = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext=headers.to_ext(header))
    try:
        record: StoredRecord | None = await _view(instance, address, request)
    except ConnectError as error:
        found = await _view_elsewhere(instance, await others(), offset_message_id, request)
        if found is None:
            raise ConnectError(
                f"the id names the broker at {address}, which cannot be connected, and no other broker has "
                "the message: if that broker has another address, start it and register it with this name "
                f"server; if it is gone, so is the message, unless a copy has its unique id or key ({error})"
            ) from error
        address, record = found
    if record is None:
        return None
    route = await instance.find_route(record.topic)
    names = [b.broker_name for b in route.brokers if address in b.addresses.values()] if route else []
    message = to_message(record, names[0] if names else address, decompress=decompress)
    unwrap_messages(instance.namespace, [message])
    return message


async def _view(instance: ClientInstance, address: str, request: Command) -> StoredRecord | None:
    """The record at a physical offset of a broker; None if there is none."""
    answer = await instance.remoting.call(address, request, VIEW_TIMEOUT)
    if answer.code == ResponseCode.SYSTEM_ERROR and "can not find message" in (answer.remark or ""):
        return None
    check(answer, address, request.code)
    return decode_records(answer.body)[0]


async def _view_elsewhere(
    instance: ClientInstance, brokers: Iterable[BrokerData], offset_message_id: str, request: Command
) -> tuple[str, StoredRecord] | None:
    """The record that was stored where an offset id says, with the address of the broker that has it now."""

    async def ask(address: str) -> StoredRecord | None:
        with suppress(SparrowError):
            return await _view(instance, address, request)
        return None

    masters = [broker.master for broker in brokers if broker.master is not None]
    records = await asyncio.gather(*map(ask, masters))
    wanted = offset_message_id.upper()
    found = ((at, one) for at, one in zip(masters, records, strict=True) if one and _offset_id(one) == wanted)
    return next(found, None)


def _offset_id(record: StoredRecord) -> str:
    return offset_id_of(record.store_host, record.physical_offset)
