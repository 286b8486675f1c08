"""Settings from a file, the environment and the command line.

Later sources win: the command's own defaults, the file, `SPARROW_<NAME>`, `--set name=value`, options such as
`--data`. A name server's variables start with `SPARROW_NAMESERVER_`, a coordinator's with
`SPARROW_COORDINATOR_`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings import (
    BrokerSettings,
    CoordinatorSettings,
    Layer,
    NameServerSettings,
    SettingsT,
    from_environment,
    is_loopback,
    load,
)
from sparrowmq.core.settings_text import parse_assignments, parse_properties, parse_toml

BROKER_PREFIX: Final = "SPARROW_"
NAMESERVER_PREFIX: Final = "SPARROW_NAMESERVER_"
COORDINATOR_PREFIX: Final = "SPARROW_COORDINATOR_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where one server's settings come from; each mapping is of texts by RocketMQ's names."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def read_settings_file(path: Path) -> dict[str, str]:
    """The pairs of a file: TOML when its name ends in .toml, else Java properties."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; give another file with -c") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    try:
        return parse_toml(text) if path.suffix == ".toml" else parse_properties(text)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def _layers(settings_class: type, sources: Sources, prefix: str) -> list[Layer]:
    return [
        Layer("default", sources.defaults),
        Layer(str(sources.file), read_settings_file(sources.file) if sources.file else {}),
        Layer("environment", from_environment(settings_class, sources.environment, prefix)),
        Layer("--set", parse_assignments(sources.assignments)),
        Layer("option", sources.options),
    ]


def _settings(settings_class: type[SettingsT], sources: Sources, prefix: str) -> tuple[SettingsT, list[str]]:
    settings, warnings = load(settings_class, _layers(settings_class, sources, prefix))
    if is_loopback(settings.bind_address):
        return settings, warnings
    if isinstance(settings, CoordinatorSettings):
        warnings.append(
            f"bindAddress={settings.bind_address}: passwords and tokens cross the network in clear; put a "
            "proxy with TLS in front, or keep it inside a network you trust"
        )
    elif not _is_guarded(settings):
        warnings.append(
            f"bindAddress={settings.bind_address}: everyone who reaches this address can read, write and "
            "delete; there is neither access control nor TLS. Keep it inside a network you trust"
        )
    return settings, warnings


def _is_guarded(settings: BrokerSettings | NameServerSettings) -> bool:
    """Whether access control, or TLS and nothing else, keeps strangers out of a server."""
    if isinstance(settings, BrokerSettings) and (settings.acl_enable or settings.authentication_enabled):
        return True
    return settings.tls_server_mode == "enforcing"


def broker_settings(sources: Sources) -> tuple[BrokerSettings, list[str]]:
    """A broker's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(BrokerSettings, sources, BROKER_PREFIX)


def nameserver_settings(sources: Sources) -> tuple[NameServerSettings, list[str]]:
    """A name server's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(NameServerSettings, sources, NAMESERVER_PREFIX)


def coordinator_settings(sources: Sources) -> tuple[CoordinatorSettings, list[str]]:
    """A coordinator's settings, and warnings to show. Raises `SettingsError`."""
    return _settings(CoordinatorSettings, sources, COORDINATOR_PREFIX)
