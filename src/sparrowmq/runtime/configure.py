"""Settings from a file, the environment and the command line.

Later sources override earlier ones: the command's own defaults, the file, `SPARROW_<NAME>`, `--set
name=value`, options such as `--data`. A name server's variables start with `SPARROW_NAMESERVER_`, a
coordinator's with `SPARROW_COORDINATOR_`, a proxy's with `SPARROW_PROXY_`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import (
    BrokerSettings,
    CoordinatorSettings,
    Layer,
    NameServerSettings,
    ProxySettings,
    from_environment,
    is_loopback,
    load,
    table,
)
from sparrowmq.core.settings.text import environment_name, parse_assignments, parse_properties, parse_toml
from sparrowmq.core.settings.tls import TlsSettings
from sparrowmq.transport.tls import read_tls_settings

BROKER_PREFIX: Final = "SPARROW_"
NAMESERVER_PREFIX: Final = "SPARROW_NAMESERVER_"
COORDINATOR_PREFIX: Final = "SPARROW_COORDINATOR_"
PROXY_PREFIX: Final = "SPARROW_PROXY_"
_GuardedT = TypeVar("_GuardedT", BrokerSettings, NameServerSettings, CoordinatorSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of one server's settings; each mapping has texts by RocketMQ's names."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def read_settings_file(path: Path) -> dict[str, str]:
    """The pairs of a file: TOML when its name ends in .toml, otherwise Java properties."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}; give another file with -c"
        raise SettingsError(text, what="file", value=path) from error
    except UnicodeDecodeError as error:
        text = f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise SettingsError(text, what="file", value=path) from error
    try:
        return parse_toml(text) if path.suffix == ".toml" else parse_properties(text)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}", what="file", value=path) from error


def _layers(settings_class: type, sources: Sources, prefix: str) -> list[Layer]:
    return [
        Layer("default", sources.defaults),
        Layer(str(sources.file), read_settings_file(sources.file) if sources.file else {}),
        Layer("environment", from_environment(settings_class, sources.environment, prefix)),
        Layer("--set", parse_assignments(sources.assignments)),
        Layer("option", sources.options),
    ]


def _settings(settings_class: type[_GuardedT], sources: Sources, prefix: str) -> tuple[_GuardedT, list[str]]:
    settings, warnings = load(settings_class, _layers(settings_class, sources, prefix))
    warnings += _told_to_others(settings_class, sources, prefix)
    warnings += _open_metrics(settings)
    if is_loopback(settings.bind_address):
        return settings, warnings
    opening = _opening(settings)
    if isinstance(settings, CoordinatorSettings):
        if opening:
            warnings.append(f"bindAddress={settings.bind_address}: {opening}")
        warnings.append(
            f"bindAddress={settings.bind_address}: passwords and tokens are sent unencrypted; put a TLS "
            f"proxy in front of it, or open it only in a network that you trust"
        )
    elif opening:
        warnings.append(
            f"bindAddress={settings.bind_address}: anyone who can reach this address can read, write and "
            f"delete; {opening}. Open it only in a network that you trust"
        )
    return settings, warnings


def _open_metrics(
    settings: BrokerSettings | NameServerSettings | CoordinatorSettings | ProxySettings,
) -> list[str]:
    """A warning if others may read the metrics, for which there are no accounts."""
    host = settings.metrics_prom_exporter_host
    if settings.metrics_exporter_type != "PROM" or not host or is_loopback(host):
        return []
    return [
        f"metricsPromExporterHost={host}: anyone who can reach this address can read the names of topics and "
        f"groups, and their counters. Open it only in a network that you trust"
    ]


def _told_to_others(settings_class: type, sources: Sources, prefix: str) -> list[str]:
    """Secrets that other users of this machine can read: in process arguments, and in readable files."""
    rows = table(settings_class)
    secrets = {name for name, row in rows.items() if row.secret}
    given = {**parse_assignments(sources.assignments), **sources.options}
    warnings = [
        f"{name} on the command line: every user of this machine sees it in the list of processes; set "
        f"{environment_name(name, prefix)}, or write it into the file of --config"
        for name in sorted(secrets & given.keys())
        if name != "databaseUrl" or _holds_password(given[name])
    ]
    file = sources.file
    held = sorted(secrets & read_settings_file(file).keys()) if file else []
    if file and held and file.stat().st_mode & 0o007:
        warnings.append(
            f"{file} holds {', '.join(held)}, and every user of this machine can read it; "
            f"type: chmod o= {file}"
        )
    return warnings


def _holds_password(url: str) -> bool:
    """Whether a database URL has a password; an invalid URL may have one."""
    try:
        return ("@" in url and urlsplit(url).password is not None) or "password" in urlsplit(url).query
    except ValueError:
        return True


def _opening(settings: BrokerSettings | NameServerSettings | CoordinatorSettings) -> str:
    """A warning if a reachable server accepts unauthenticated clients, and what to set; otherwise empty."""
    if isinstance(settings, BrokerSettings) and settings.authentication_enabled:
        return ""
    tls = _tls(settings)
    accounts = ", or authenticationEnabled" if isinstance(settings, BrokerSettings) else ""
    if tls is None or tls.server_cert is None:
        members = isinstance(settings, CoordinatorSettings)
        return "" if members else "there is neither access control nor TLS"
    if tls.server_need_client_auth != "require":
        return (
            "TLS prevents eavesdropping but does not authenticate clients: they need no certificate. Set "
            "tls.server.need.client.auth=require, with tls.server.authClient=true and "
            f"tls.server.trustCertPath, in {settings.tls_config_file}{accounts}"
        )
    if settings.tls_server_mode != "enforcing":
        return (
            "TLS clients need a certificate, but connections without TLS are also accepted. Set "
            f"tls.server.mode=enforcing{accounts}"
        )
    return ""


def _tls(settings: BrokerSettings | NameServerSettings | CoordinatorSettings) -> TlsSettings | None:
    """The TLS of a server's port; None without TLS, and for a file that the start will refuse."""
    if settings.tls_config_file is None or settings.tls_server_mode == "disabled":
        return None
    try:
        return read_tls_settings(settings.tls_config_file)
    except SettingsError:
        return None


def broker_settings(sources: Sources) -> tuple[BrokerSettings, list[str]]:
    """A broker's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(BrokerSettings, sources, BROKER_PREFIX)


def broker_texts(sources: Sources) -> dict[str, str]:
    """A broker's settings from all sources, as texts by RocketMQ's names: for a process of its own."""
    return {
        name: text
        for layer in _layers(BrokerSettings, sources, BROKER_PREFIX)
        for name, text in layer.values.items()
    }


def nameserver_settings(sources: Sources) -> tuple[NameServerSettings, list[str]]:
    """A name server's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(NameServerSettings, sources, NAMESERVER_PREFIX)


def coordinator_settings(sources: Sources) -> tuple[CoordinatorSettings, list[str]]:
    """A coordinator's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(CoordinatorSettings, sources, COORDINATOR_PREFIX)


def proxy_settings(sources: Sources) -> tuple[ProxySettings, list[str]]:
    """A gRPC proxy's settings, and warnings to show. Raises `SettingsError`."""
    settings, warnings = load(ProxySettings, _layers(ProxySettings, sources, PROXY_PREFIX))
    warnings += _open_metrics(settings)
    if not is_loopback(settings.bind_address):
        open_to_all = (
            "anyone who can reach this address can send and receive messages with the rights of the proxy's "
            "account; set authenticationEnabled"
        )
        told = "messages are not encrypted" if settings.authentication_enabled else open_to_all
        warnings.append(
            f"bindAddress={settings.bind_address}: {told}. Open it only in a network that you trust"
        )
    return settings, warnings
