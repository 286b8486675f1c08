# ruff: noqa: RUF009 - rows of frozen dataclasses are made by one function
"""The settings of a gRPC proxy, as `servers` has those of the other servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings import shared_rows
from sparrowmq.core.settings.addresses import split_addresses
from sparrowmq.core.settings.rows import check_ranges, table
from sparrowmq.core.settings.rows import row as _row
from sparrowmq.core.settings.text import PORT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings(shared_rows.MetricsSettings):
    """A gRPC proxy's settings. The account with which it reaches brokers is that of every command."""

    bind_address: str = shared_rows.bind_address()
    listen_port: int = shared_rows.listen_port(8081, "port for gRPC clients; 0 takes any free one")
    namesrv_addr: str = _row("127.0.0.1:9876", "name servers of the cluster behind the proxy")
    authentication_enabled: bool = _row(
        False, "whether calls must be signed by a user of the brokers; needs the account of a super user"
    )
    processes: int = _row(
        1, "processes that share the port; each has its own limits, and its own metrics port", low=1, high=64
    )
    connections_max: int = shared_rows.connections_max()
    connections_per_address_max: int = shared_rows.connections_per_address_max()
    clients_max: int = _row(10_000, "clients that have sent their settings; ours", low=1, high=1_000_000)
    calls_max: int = _row(
        20_000,
        "calls at one time, receives and telemetry streams included; half of them of one address; ours",
        low=2,
        high=2_000_000,
    )
    connection_memory_max: int = _row(
        128 * 1024 * 1024,
        "bytes kept for all connections together: requests, and answers not read yet; ours",
        low=16 * 1024 * 1024,
        high=2**40,
    )
    tls_server_mode: str = shared_rows.tls_server_mode()
    tls_config_file: Path | None = shared_rows.tls_config_file(
        "path of tls.properties, which names the certificates; without it one is made at each start"
    )
    metrics_prom_exporter_port: int = shared_rows.metrics_prom_exporter_port(5559)

    def __post_init__(self) -> None:
        check_ranges(self)
        split_addresses(self.namesrv_addr)
        shared_rows.check_metrics(self)
        last = self.metrics_prom_exporter_port + self.processes - 1
        if self.metrics_exporter_type == "PROM" and self.metrics_prom_exporter_port and last > PORT_MAX:
            raise SettingsError(
                f"metricsPromExporterPort={self.metrics_prom_exporter_port}: {self.processes} processes need "
                f"the ports up to {last}, and the last one is {PORT_MAX}; choose a lower port",
                "metricsPromExporterPort",
                self.metrics_prom_exporter_port,
                limit=PORT_MAX,
                other="processes",
            )

    def texts(self) -> dict[str, str]:
        """What differs from the defaults, by wire name, as `load` reads it."""
        found = {}
        for name, one in table(ProxySettings).items():
            value = getattr(self, one.attribute)
            if value != one.default:
                found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return found
