"""The hook that makes spans: `To_<topic>`, `EndTransaction`, `From_<topic>` (client:B-120).

The properties of a message contain the context of its send span, in the propagator's format (`traceparent` by
default); a consumer in any language continues from there.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from sparrowmq import (
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    Message,
    MessageType,
    ReceivedMessage,
    SendContext,
    SendHook,
)
from sparrowmq.otel.attributes import consume_attributes, end_attributes, result_attributes, send_attributes
from sparrowmq.otel.contexts import keep, kept, library_version

HALVES_MAX: Final = 10_000
"""Maximum number of half messages that wait for their end; beyond it, the ends of the oldest have no
parent.
"""


class OpenTelemetryHook(SendHook, EndTransactionHook, ConsumeHook):
    """Creates a span for each attempt of a send, each end of a transaction and each consumed message.

    Add one to the `hooks` of producers and consumers; it may be shared. A send's span is a child of the one
    in the message's properties, if there is one, else of the caller's current one. A batch has one span,
    which all its members carry.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        """By default OpenTelemetry's global provider and propagator are used."""
        self._tracer = trace.get_tracer("sparrowmq", library_version(), tracer_provider)
        self._propagator = propagator
        self._halves: OrderedDict[str, Context] = OrderedDict()

    def context_of(self, message: Message | ReceivedMessage) -> Context:
        """The context that a message carries, for spans of a handler's own:

        tracer.start_as_current_span("billing", context=hook.context_of(message))
        """
        propagator = self._propagator or propagate.get_global_textmap()
        return propagator.extract(dict(message.properties), context=Context())

    def before_send(self, context: SendContext) -> None:
        """Begin a span, and add its context to the message."""
        message = context.message
        span = self._tracer.start_span(
            f"To_{message.topic}",
            context=self._parent(message),
            kind=SpanKind.PRODUCER,
            attributes=send_attributes(context),
        )
        keep(context, self, span)
        carrier: dict[str, str] = {}
        propagator = self._propagator or propagate.get_global_textmap()
        propagator.inject(carrier, trace.set_span_in_context(span))
        context.properties.update({name: value for name, value in carrier.items() if value})

    def after_send(self, context: SendContext) -> None:
        """End the span with the outcome."""
        span: Span | None = kept(context, self)
        if span is None:
            return
        if context.result is not None:
            span.set_attributes(result_attributes(context.result))
            if context.message_type is MessageType.HALF:
                self._halves[context.message_id] = trace.set_span_in_context(span)
                if len(self._halves) > HALVES_MAX:
                    self._halves.popitem(last=False)
        elif context.error is not None:
            span.set_attribute("rocketmq.success", False)
            span.record_exception(context.error)
            span.set_status(Status(StatusCode.ERROR, f"{type(context.error).__name__}: {context.error}"))
        span.end()

    def end_transaction(self, context: EndTransactionContext) -> None:
        """One span without duration, a child of the half message's."""
        half = self._halves.pop(context.message_id, None)
        parent = self._parent(context.message) if half is None else half
        self._tracer.start_span(
            "EndTransaction", context=parent, kind=SpanKind.PRODUCER, attributes=end_attributes(context)
        ).end()

    def before_consume(self, context: ConsumeContext) -> None:
        """Begin a span for each message, as a child of its send span."""
        spans = [
            self._tracer.start_span(
                f"From_{message.topic}",
                context=self._parent(message),
                kind=SpanKind.CONSUMER,
                attributes=consume_attributes(context, message),
            )
            for message in context.messages
        ]
        keep(context, self, spans)

    def after_consume(self, context: ConsumeContext) -> None:
        """End the spans with the outcome, which is the same for all."""
        spans: list[Span] = kept(context, self) or []
        for span in spans:
            span.set_attribute("rocketmq.success", context.success)
            if not context.success:
                span.set_status(Status(StatusCode.ERROR, context.status))
            span.end()

    def _parent(self, message: Message | ReceivedMessage) -> Context | None:
        """The message's own context, None for the current one."""
        found = self.context_of(message)
        return found if trace.get_current_span(found).get_span_context().is_valid else None
