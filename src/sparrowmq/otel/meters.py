"""The hook that measures: sends and their attempts, handler calls, and what is in hand.

Names, units and attributes are those of OpenTelemetry's conventions for messaging; `sparrowmq.client.*` are
our own. Neither message ids nor keys are attributes, so the number of series is that of topics and brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from sparrowmq import ConsumeContext, ConsumeHook, SendContext, SendHook, SendStatus
from sparrowmq.hooks import PopContext, PopHook, PullLoopContext, PullLoopHook, SettleContext
from sparrowmq.otel.attributes import SERVICE, Value
from sparrowmq.otel.contexts import keep, kept, library_version
from sparrowmq.otel.invisible import InvisibleMessages

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the durations' buckets, from the conventions."""

Attributes = dict[str, Value]


class MeterHook(SendHook, PullLoopHook, PopHook, ConsumeHook):
    """Measures each attempt of a send, each pull, each POP, what becomes of its messages, and each call of a
    handler.

    Add one to the `hooks` of producers and consumers; it may be shared, also with `OpenTelemetryHook`. A send
    that is tried again counts once for each attempt: those with `error.type` failed.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """By default OpenTelemetry's global provider is used."""
        meter = metrics.get_meter("sparrowmq", library_version() or "", meter_provider)
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of an attempt to send, a pull, a POP, or an acknowledgement.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._handled = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of a call of a handler.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Messages of attempts to send.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Messages given to handlers.",
        )
        self._pulled = meter.create_counter(
            "sparrowmq.client.messages.pulled",
            unit="{message}",
            description="Messages that pulls and POPs brought.",
        )
        self._held_up = meter.create_counter(
            "sparrowmq.client.pull.held_up",
            unit="s",
            description="Time that loops of pulls and POPs waited because handlers had enough messages.",
        )
        self._sending = meter.create_up_down_counter(
            "sparrowmq.client.messages.sending",
            unit="{message}",
            description="Messages of attempts that have not ended.",
        )
        self._in_hand = meter.create_up_down_counter(
            "sparrowmq.client.messages.in_hand",
            unit="{message}",
            description="Messages that handlers have.",
        )
        self._settled = meter.create_counter(
            "sparrowmq.client.messages.settled",
            unit="{message}",
            description="Messages of POPs that were acknowledged or hidden for another time.",
        )
        self._invisible = InvisibleMessages()
        meter.create_observable_up_down_counter(
            "sparrowmq.client.messages.invisible",
            [self._observe_invisible],
            unit="{message}",
            description="Messages of POPs that are not acknowledged, and that no other member gets yet.",
        )

    def before_send(self, context: SendContext) -> None:
        """An attempt begins."""
        place = _place(context.message.topic, "send")
        keep(context, self, (perf_counter(), place))
        self._sending.add(len(context.messages), place)

    def after_send(self, context: SendContext) -> None:
        """An attempt ended."""
        begun: tuple[float, Attributes] | None = kept(context, self)
        if begun is None:
            return
        since, place = begun
        count = len(context.messages)
        self._sending.add(-count, place)
        found = place | _server(context.address) | _send_error(context)
        self._operations.record(perf_counter() - since, found)
        self._sent.add(count, found)

    def after_pull(self, context: PullLoopContext) -> None:
        """A pull ended."""
        place = _of_group(context.queue.topic, "receive", context.group)
        self._operations.record(context.seconds, place | _error(context.error))
        self._pulled.add(context.messages, place)
        self._held_up.add(context.held_up, place)

    def after_pop(self, context: PopContext) -> None:
        """A POP ended."""
        place = _of_group(context.queue.topic, "receive", context.group)
        self._operations.record(context.seconds, place | _error(context.error))
        self._pulled.add(len(context.receipts), place)
        self._held_up.add(context.held_up, place)
        self._invisible.popped(context)

    def after_settle(self, context: SettleContext) -> None:
        """An acknowledgement or a change of the invisible time ended."""
        name = "ack" if context.invisible is None else "change_invisible"
        place = _of_group(context.topic, "settle", context.group) | {"messaging.operation.name": name}
        found = place | _error(context.error)
        self._operations.record(context.seconds, found)
        self._settled.add(1, found)
        if context.error is None:
            self._invisible.settled(context)

    def _observe_invisible(self, options: CallbackOptions) -> Iterable[Observation]:
        for (topic, group), count in self._invisible.counts().items():
            place: Attributes = {
                "messaging.system": SERVICE,
                "messaging.destination.name": topic,
                "messaging.consumer.group.name": group,
            }
            yield Observation(count, place)

    def before_consume(self, context: ConsumeContext) -> None:
        """A call of a handler begins."""
        place = _of_group(context.messages[0].topic, "process", context.group)
        keep(context, self, (perf_counter(), place))
        count = len(context.messages)
        self._in_hand.add(count, place)
        self._consumed.add(count, place)

    def after_consume(self, context: ConsumeContext) -> None:
        """A call of a handler ended."""
        begun: tuple[float, Attributes] | None = kept(context, self)
        if begun is None:
            return
        since, place = begun
        self._in_hand.add(-len(context.messages), place)
        failed: Attributes = {} if context.success else {"error.type": context.status or "_OTHER"}
        self._handled.record(perf_counter() - since, place | failed)


def _place(topic: str, operation: str) -> Attributes:
    return {
        "messaging.system": SERVICE,
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _of_group(topic: str, operation: str, group: str) -> Attributes:
    return _place(topic, operation) | {"messaging.consumer.group.name": group}


def _error(error: Exception | None) -> Attributes:
    return {} if error is None else {"error.type": type(error).__name__}


def _server(address: str) -> Attributes:
    host, _, port = address.rpartition(":")
    return {"server.address": host.strip("[]"), "server.port": int(port)} if port.isdecimal() else {}


def _send_error(context: SendContext) -> Attributes:
    """Why an attempt failed, or what it could not guarantee, such as `FLUSH_DISK_TIMEOUT`."""
    if context.error is not None:
        return _error(context.error)
    if context.result is None or context.result.status is SendStatus.SEND_OK:
        return {}
    return {"error.type": context.result.status.name}
