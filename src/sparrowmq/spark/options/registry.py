"""Settings of a schema registry. Values only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.options import values

CONFLUENT: Final = "confluent"
ROCKETMQ: Final = "rocketmq"
KINDS: Final = (CONFLUENT, ROCKETMQ)
_ADDRESS = re.compile(r"https?://[^\s,@]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """A registry; created from the options `schemaRegistry…` of a read, which are documented there."""

    addresses: tuple[str, ...]
    """URLs, tried in order until one answers."""
    kind: str = CONFLUENT
    subject: str = ""
    """Subject whose newest schema is the reader's; RocketMQ's registry also looks up ids within it."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str = ""
    """PEM file, on the driver and on every executor; the same holds for the next two."""
    cert: str = ""
    key: str = ""
    timeout: float = 10.0
    """Timeout in seconds for one schema, including retries."""

    def check(self) -> None:
        """Raise `SettingsError` if the settings contradict each other."""
        if bool(self.user) != bool(self.password):
            raise _half("schemaRegistryUser", self.user, "schemaRegistryPassword")
        if self.user and self.token:
            raise values.both("schemaRegistryUser", "schemaRegistryToken")
        if bool(self.cert) != bool(self.key):
            raise _half("schemaRegistryCert", self.cert, "schemaRegistryKey")
        if self.ca or self.cert:
            plain = [one for one in self.addresses if not one.startswith("https:")]
            if plain:
                raise SettingsError(
                    f"schemaRegistry={plain[0]!r} does not use TLS: give an address with https:",
                    "schemaRegistry",
                    plain[0],
                )

    def __str__(self) -> str:
        return " or ".join(self.addresses)


def _half(name: str, value: object, other: str) -> SettingsError:
    return values.half(other, name) if value else values.half(name, other)


def addresses(name: str, text: str) -> tuple[str, ...]:
    """`http://host:port`, several separated by commas. Raises `SettingsError`, which shows no password."""
    found = tuple(one.strip().rstrip("/") for one in text.split(",") if one.strip())
    for one in found:
        if "@" in urlsplit(one).netloc:
            raise SettingsError(
                f"option {name} has a user in its address; instead, give schemaRegistryUser and "
                f"schemaRegistryPassword",
                name,
                other="schemaRegistryUser",
            )
    if not found or not all(_ADDRESS.fullmatch(one) for one in found):
        raise SettingsError(
            f"option {name}={text!r}: must be addresses such as http://registry:8081, separated by commas",
            name,
            text,
        )
    return found
