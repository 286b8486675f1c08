# ruff: noqa: RUF009 - rows of frozen dataclasses are made by one function
"""The settings of a coordinator; `servers` has those of the other servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparrowmq.core.settings import shared_rows
from sparrowmq.core.settings.addresses import DEFAULT_ADDRESS, split_addresses
from sparrowmq.core.settings.rows import check_ranges
from sparrowmq.core.settings.rows import row as _row


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(shared_rows.MetricsSettings):
    """A coordinator's settings. RocketMQ has none: the names are this project's."""

    bind_address: str = _row(DEFAULT_ADDRESS, "address of the HTTP API; loopback by default")
    listen_port: int = shared_rows.listen_port(9877, "port of the HTTP API; 0 takes any free one")
    connections_max: int = _row(200, "open connections to the HTTP API", low=2, high=10_000)
    connections_per_address_max: int = shared_rows.connections_per_address_max(high=10_000)
    console_url: str = _row("", "URL of the console if it has a host name, such as https://mq.example.com")
    database_url: str = _row(
        "", "database, such as postgresql://user:password@host/name; default: SQLite in --data", secret=True
    )
    namesrv_addr: str = _row("127.0.0.1:9876", "name servers of the monitored cluster")
    body_schemas: Path | None = _row(
        None,
        "TOML file with Avro and protobuf schemas of topics, to show bodies in the console; default: none",
    )
    members_port: int = _row(
        0,
        "port for members of managed groups, which name servers publish; 0 takes any free one",
        low=0,
        high=65535,
    )
    members_address: str = _row(
        "", "address that members use; default: bindAddress, or the one that reaches the brokers"
    )
    tls_server_mode: str = shared_rows.tls_server_mode("members' port")
    tls_config_file: Path | None = shared_rows.tls_config_file(
        "path of tls.properties, with the certificates of the members' port; no TLS without it"
    )
    lease_time: int = _row(15_000, "ms that a leader's lease is valid without renewal", low=300, high=600_000)
    lease_renew_interval: int = _row(5_000, "ms between renewals and between claims", low=50, high=300_000)
    lease_margin: int = _row(2_000, "ms before its lease ends that a leader stops", low=10, high=300_000)
    alarm_webhook: str = _row("", "URL for notices as JSON; it may contain a key", secret=True)
    alarm_email_to: str = _row("", "recipients of every notice, separated by commas")
    smtp_host: str = _row("", "mail server; without it, no mails are sent")
    smtp_port: int = _row(587, "port of the mail server", low=1, high=65535)
    smtp_tls: str = _row(
        "starttls", "encryption of mails; certificates are checked", choices=("none", "starttls", "always")
    )
    smtp_from: str = _row("sparrowmq@localhost", "sender of mails")
    smtp_user: str = _row("", "user name for the mail server")
    smtp_password: str = _row("", "password for the mail server", secret=True)
    oidc_issuer: str = _row("", "OpenID Connect provider that people may log in with")
    oidc_client_id: str = _row("", "client id of this coordinator at the provider")
    oidc_client_secret: str = _row("", "its secret; not needed for a public client", secret=True)
    oidc_scope: str = _row("openid profile email", "scopes that are requested")
    oidc_name_claim: str = _row("preferred_username", "claim with the name of a user")
    oidc_role_claim: str = _row("groups", "claim whose values oidcRoles maps to roles")
    oidc_roles: str = _row(
        "", "value=role, joined with commas; * for everybody; without it nobody may log in"
    )
    metrics_prom_exporter_port: int = shared_rows.metrics_prom_exporter_port(5556)

    def __post_init__(self) -> None:
        check_ranges(self)
        split_addresses(self.namesrv_addr)
        shared_rows.check_metrics(self)
