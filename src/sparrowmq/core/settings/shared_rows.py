"""Rows that several servers have: the port, its limits and TLS, log lines, metrics. Pure.

They are functions where servers differ, because a dataclass field belongs to one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.addresses import DEFAULT_ADDRESS, OF_ONE_ADDRESS
from sparrowmq.core.settings.rows import row
from sparrowmq.core.settings.text import parse_headers, parse_labels
from sparrowmq.core.settings.tls import MODES

CONNECTIONS_LIMIT: Final = 1_000_000
OTLP_GRPC: Final = "OTLP_GRPC"
TLS_FILE: Final = "path of tls.properties, which names the certificates; no TLS without it"


def bind_address() -> Any:
    """`bindAddress`."""
    return row(DEFAULT_ADDRESS, "address to listen on; loopback by default")


def listen_port(default: int, help_text: str = "port; 0 takes any free one") -> Any:
    """`listenPort`."""
    return row(default, help_text, low=0, high=65535)


def connections_max() -> Any:
    """`connectionsMax`."""
    return row(10_000, "open connections; ours", low=1, high=CONNECTIONS_LIMIT)


def connections_per_address_max(high: int = CONNECTIONS_LIMIT) -> Any:
    """`connectionsPerAddressMax`."""
    help_text = f"{OF_ONE_ADDRESS} connectionsMax, but all for the server's own machine"
    return row(0, help_text, low=0, high=high)


def tls_server_mode(port: str = "port") -> Any:
    """`tls.server.mode`."""
    help_text = f"TLS on the {port}: off, optional, or required"
    return row("permissive", help_text, choices=MODES, name="tls.server.mode")


def tls_config_file(help_text: str = TLS_FILE) -> Any:
    """`tls.config.file`."""
    return row(None, help_text, name="tls.config.file")


def log_level() -> Any:
    """`logLevel`."""
    help_text = "DEBUG, INFO, WARNING or ERROR; single loggers may differ: WARNING,store=DEBUG; ours"
    return row("WARNING", help_text)


def log_format() -> Any:
    """`logFormat`."""
    return row("text", "log lines as text or JSON; ours", choices=("text", "json"))


def slow_request_time() -> Any:
    """`slowRequestTime`."""
    return row(500, "ms from which a request is logged as slow; 0: never; ours", low=0, high=3_600_000)


def metrics_prom_exporter_port(default: int) -> Any:
    """`metricsPromExporterPort`."""
    help_text = "port for /metrics, /health and /ready; 0 takes any free one"
    return row(default, help_text, low=0, high=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The rows for metrics; each server has its own `metricsPromExporterPort`."""

    metrics_exporter_type: str = row(
        "DISABLE",
        "PROM opens a port for /metrics, /health and /ready; OTLP_GRPC sends metrics to a collector",
        choices=("DISABLE", "PROM", OTLP_GRPC),
    )
    metrics_grpc_exporter_target: str = row("", "the collector's URL; without http:// it is https://")
    metrics_grpc_exporter_header: str = row("", "its headers, name:value,name:value", secret=True)
    metric_grpc_exporter_interval_in_mills: int = row(60_000, "ms between exports", low=100, high=3_600_000)
    metric_grpc_exporter_time_out_in_mills: int = row(3_000, "ms for a request to it", low=100, high=600_000)
    metrics_prom_exporter_host: str = row(
        DEFAULT_ADDRESS, "address of that port; loopback by default, RocketMQ: all addresses"
    )
    metrics_series_max: int = row(
        10_000, "most series of one metric; others are counted and left out; ours", low=100, high=1_000_000
    )
    metrics_label: str = row("", "labels added to every metric, name:value,name:value")


def collector_url(target: str) -> str:
    """The URL of a collector, from `metricsGrpcExporterTarget`. Raises `SettingsError`."""
    url = target if "://" in target else f"https://{target}"
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or an address in half a pair of brackets
        is_url = False
    if not is_url or not url.isprintable() or " " in url:
        raise SettingsError(
            f"metricsGrpcExporterTarget={target} is not a collector's URL; write http://HOST:4317, or "
            "https://HOST:4317 for one with TLS",
            "metricsGrpcExporterTarget",
            target,
        )
    return url


def check_metrics(settings: MetricsSettings) -> None:
    """Check what the ranges of these rows for metrics do not say. Raises `SettingsError`."""
    parse_labels(settings.metrics_label)
    parse_headers(settings.metrics_grpc_exporter_header)
    if settings.metrics_grpc_exporter_target:
        collector_url(settings.metrics_grpc_exporter_target)
    if settings.metrics_exporter_type == OTLP_GRPC and not settings.metrics_grpc_exporter_target:
        raise SettingsError(
            f"metricsExporterType={OTLP_GRPC} needs a collector: metricsGrpcExporterTarget=http://HOST:4317",
            "metricsExporterType",
            other="metricsGrpcExporterTarget",
        )
