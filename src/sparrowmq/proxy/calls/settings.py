"""The settings that a client gets: its own, completed by the proxy and the group's brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.proxy.base.limits import (
    BODY_BYTES_MAX,
    EXPONENTIAL_RETRY,
    POLL_MS_MAX,
    RECEIVE_BATCH_MAX,
    RETRY_DELAYS_MS,
    RETRY_TIMES,
    SEND_ATTEMPTS,
    SEND_BACKOFF_FACTOR,
    SEND_BACKOFF_MS,
    SEND_BACKOFF_MS_MAX,
)
from sparrowmq.proxy.definition.messages import v2


def answer_settings(asked: Any, group: SubscriptionGroupConfig | None) -> Any:
    """The settings for a client; `group` is None for producers and for groups that no broker knows yet."""
    found = v2.Settings()
    found.CopyFrom(asked)
    found.metric.on = False
    found.metric.ClearField("endpoints")
    if found.HasField("publishing"):
        found.publishing.max_body_size = BODY_BYTES_MAX
        found.publishing.validate_message_type = True
        found.backoff_policy.max_attempts = SEND_ATTEMPTS
        backoff = SEND_BACKOFF_MS, SEND_BACKOFF_MS_MAX, SEND_BACKOFF_FACTOR
        _set_exponential(found.backoff_policy.exponential_backoff, *backoff)
        return found
    told = found.subscription
    told.fifo = group is not None and group.consume_message_orderly
    told.receive_batch_size = RECEIVE_BATCH_MAX
    told.long_polling_timeout.FromMilliseconds(POLL_MS_MAX)
    found.backoff_policy.max_attempts = (RETRY_TIMES if group is None else group.retry_max_times) + 1
    _set_backoff(found.backoff_policy, {} if group is None else group.group_retry_policy)
    return found


def _set_backoff(policy: Any, retry: Mapping[str, Any]) -> None:
    """The delays between attempts: those of the group, or RocketMQ's."""
    if retry.get("type") == "EXPONENTIAL":
        own = retry.get("exponentialRetryPolicy") or {}
        initial, longest, factor = (
            own.get(name, usual)
            for name, usual in zip(("initial", "max", "multiplier"), EXPONENTIAL_RETRY, strict=True)
        )
        _set_exponential(policy.exponential_backoff, int(initial), int(longest), float(factor))
        return
    own = retry.get("customizedRetryPolicy") or {}
    policy.customized_backoff.Clear()
    for millis in own.get("next") or RETRY_DELAYS_MS:
        policy.customized_backoff.next.add().FromMilliseconds(int(millis))


def _set_exponential(backoff: Any, initial_ms: int, longest_ms: int, factor: float) -> None:
    backoff.initial.FromMilliseconds(initial_ms)
    backoff.max.FromMilliseconds(longest_ms)
    backoff.multiplier = factor
