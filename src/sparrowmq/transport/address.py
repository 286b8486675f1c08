"""Addresses: `host:port` text, and the packed form in stored records."""

from __future__ import annotations

import socket

from sparrowmq.core.errors import ConnectError
from sparrowmq.core.settings.text import port_number

_MAPPED = "::ffff:"


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host may be in brackets. Raises `ConnectError`."""
    host, _, digits = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    port = port_number(digits)
    if host and port is not None:
        return host, port
    raise ConnectError(
        f"{address!r} is not an address; write host:port, such as 127.0.0.1:9876", address=address
    )


def format_address(host: str, port: int) -> str:
    """`host:port`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def vip_address(address: str) -> str:
    """The broker's address for urgent requests: two ports below the usual one (client:A-66)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def peer_of(name: object) -> tuple[str, int]:
    """Host and port of a socket name; an IPv4 address mapped into IPv6 is returned as IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "0.0.0.0", 0
    host = str(name[0]).partition("%")[0]
    if host.startswith(_MAPPED) and "." in host:
        host = host[len(_MAPPED) :]
    return host, int(name[1])


def pack_host(host: str, port: int) -> bytes:
    """A numeric host and its port as in records: 8 bytes for IPv4, 20 for IPv6 (broker:2.1)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host) + port.to_bytes(4, "big")
