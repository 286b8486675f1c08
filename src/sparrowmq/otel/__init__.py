"""OpenTelemetry: spans of sends, ends of transactions and consumption, tied together across clients.

    from sparrowmq.otel import OpenTelemetryHook

    settings = mq.ProducerSettings(hooks=[OpenTelemetryHook()])

Needs OpenTelemetry's API: `pip install 'sparrowmq[otel]'`; nothing outside this package imports it.
"""

try:
    import opentelemetry.trace  # noqa: F401 - `hook` uses it; here it is only looked for
except ImportError as error:
    raise ImportError("sparrowmq.otel needs OpenTelemetry's API: pip install 'sparrowmq[otel]'") from error

from sparrowmq.otel.hook import OpenTelemetryHook

__all__ = ["OpenTelemetryHook"]
