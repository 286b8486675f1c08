"""A client's initial addresses: the list of name servers, and its own address."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from sparrowmq.core.errors import NoNameServerError, SettingsError
from sparrowmq.core.settings.text import port_number

NAMESRV_VARIABLES = ("SPARROW_NAMESRV", "NAMESRV_ADDR")
DOMAIN_VARIABLE = "SPARROW_NAMESRV_DOMAIN"
SUBGROUP_VARIABLE = "SPARROW_NAMESRV_SUBGROUP"


def parse_namesrv(text: str) -> tuple[str, ...]:
    """The `host:port` addresses in `text`, separated by `;` or `,` (client:A-69).

    Of `http://host:port` only the part after the slashes counts.

    Raises `SettingsError` on a part without a port number.
    """
    found = []
    for part in text.replace(",", ";").split(";"):
        address = part.strip().rstrip("/").rsplit("/", 1)[-1]
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or port_number(port) is None:
            raise SettingsError(
                f"the name server address {part.strip()!r} is not host:port; write it like 127.0.0.1:9876",
                "name_server",
                part.strip(),
            )
        found.append(address)
    return tuple(dict.fromkeys(found))


def resolve_namesrv(text: str | None, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The name servers from the setting, or else from the environment (client:A-68).

    Raises `NoNameServerError` when neither has any.
    """
    addresses = find_namesrv(text, environment)
    if not addresses:
        raise NoNameServerError(
            "no name server is known: give name_server='host:port', or set SPARROW_NAMESRV"
        )
    return addresses


def find_namesrv(text: str | None, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """As `resolve_namesrv`, but empty when there are none."""
    environment = os.environ if environment is None else environment
    candidates = [text] if text is not None else [environment.get(name) for name in NAMESRV_VARIABLES]
    for candidate in candidates:
        if candidate and (addresses := parse_namesrv(candidate)):
            return addresses
    return ()


def local_address() -> str:
    """The local address used for outgoing connections, or else 127.0.0.1. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: only routing is consulted
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
