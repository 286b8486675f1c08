"""Recall of timer messages: handles, and the request (client:B-106, B-107)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import ClientError, InvalidNameError
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, check_topic
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode

_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """The content of a handle: the timer message, its broker, and when it is due (epoch ms)."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def parse_handle(handle: str) -> RecallHandle:
    """The fields of a handle: URL-safe base64 of `v1 topic broker time id`. Raises `ClientError`."""
    try:
        words = base64.b64decode(handle.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
        version, topic, broker_name, deliver_ms, unique_key = words
        if version != _VERSION:
            raise ValueError(f"its version is {version!r}")
        return RecallHandle(topic, broker_name, int(deliver_ms), unique_key)
    except (ValueError, binascii.Error) as error:
        raise ClientError(
            f"{handle[:80]!r} is not a recall handle ({error}); use recall_handle of the send's result",
            what="handle",
            value=handle,
        ) from None


async def recall(instance: ClientInstance, group: str, topic: str, handle: str, timeout: float) -> str:
    """Ask the broker that stores the message, or else any of the topic, to drop it. Returns the message id.

    Raises `InvalidNameError` for retry and dead letter topics, `ClientError` for an invalid handle or without
    a broker, `BrokerError` when the broker refuses.
    """
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise InvalidNameError(
            f"messages of {topic!r} cannot be recalled; give the topic that they were sent to",
            what="topic",
            value=topic,
        )
    found = parse_handle(handle)
    await instance.find_route(topic)
    address = instance.routes.master(found.broker_name) or instance.routes.any_broker(topic, instance.rng)
    if address is None:
        text = f"neither broker {found.broker_name!r} nor any other broker of {topic!r} is known"
        raise ClientError(text, what="broker", value=found.broker_name)
    header = headers.RecallMessageRequest(
        topic=topic, recall_handle=handle, producer_group=group, broker_name=found.broker_name
    )
    answer = await instance.brokers.ask(address, RequestCode.RECALL_MESSAGE, header, timeout=timeout)
    return headers.from_ext(headers.RecallMessageResponse, answer.ext).msg_id
