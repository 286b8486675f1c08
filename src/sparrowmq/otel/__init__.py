"""OpenTelemetry: spans of sends, ends of transactions and consumption, linked across clients; and metrics.

    from sparrowmq.otel import MeterHook, OpenTelemetryHook

    producer = mq.Producer("orders", hooks=[OpenTelemetryHook(), MeterHook()])

Needs OpenTelemetry's API: `pip install 'sparrowmq[otel]'`; nothing outside this package imports it.
"""

try:
    import opentelemetry.trace  # noqa: F401 - `hook` uses it; only checks whether it is installed
except ImportError as error:
    raise ImportError("sparrowmq.otel needs OpenTelemetry's API: pip install 'sparrowmq[otel]'") from error

from sparrowmq.otel.hook import OpenTelemetryHook
from sparrowmq.otel.meters import MeterHook

__all__ = ["MeterHook", "OpenTelemetryHook"]
