"""Checks of addresses in settings."""

from __future__ import annotations

from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.text import port_number

OF_ONE_ADDRESS: Final = "open connections of one address (or /64 network of IPv6); 0: half of"
DEFAULT_ADDRESS: Final = "127.0.0.1"


def split_addresses(text: str) -> tuple[str, ...]:
    """`host:port;host:port` as a tuple; raises `SettingsError` naming a part without a valid port."""
    parts = tuple(part.strip() for part in text.split(";") if part.strip())
    for part in parts:
        host, _, port = part.rpartition(":")
        if not host or port_number(port) is None:
            raise SettingsError(
                f"{part!r} is not an address; write host:port, several joined with ';', "
                "for example 127.0.0.1:9876",
                value=part,
            )
    return parts
