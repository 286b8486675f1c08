"""The content of heartbeats: everything, or everything except subscriptions that the broker already knows
(client:A-56, A-63).

The latter is version 2, which is off by default: the heartbeat has a fingerprint, and a broker that knows the
fingerprint answers that nothing changed. After a lost connection, or if the broker reports a change, the
client sends everything again. As in RocketMQ's client, the fingerprint does not include the versions of
subscriptions, so that all members of a group have the same; the client tracks itself when it must send new
versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import bodies

SUPPORTED: Final = "IS_SUPPORT_HEART_BEAT_V2"
CHANGED: Final = "IS_SUB_CHANGE"

Told = tuple[int, tuple[int, ...]]
"""A fingerprint, and the versions of the subscriptions, which it does not cover."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The bodies of one heartbeat: `whole`, and `short` for brokers that received `whole`; None
    in version 1.
    """

    whole: bytes
    short: bytes = b""
    told: Told | None = None


class Heartbeats:
    """Creates the heartbeats of one client, and tracks which brokers know its subscriptions."""

    def __init__(self, client_id: str, *, version_2: bool) -> None:
        self._client_id = client_id
        self._version_2 = version_2
        self._told: dict[str, Told] = {}

    def beat(self, producers: Iterable[str], consumers: Sequence[bodies.ConsumerData]) -> Beat:
        """The heartbeat of these groups."""
        names = tuple(bodies.ProducerData(group) for group in producers)
        whole = bodies.HeartbeatData(self._client_id, names, tuple(consumers))
        if not self._version_2:
            return Beat(whole.encode())
        told = fingerprint(whole), tuple(one.version for each in consumers for one in each.subscriptions)
        whole = replace(whole, fingerprint=told[0])
        bare = tuple(replace(each, subscriptions=()) for each in consumers)
        return Beat(whole.encode(), replace(whole, consumers=bare, without_sub=True).encode(), told)

    def body(self, address: str, beat: Beat) -> bytes:
        """The body for the broker at `address`."""
        return beat.short if address in self._told and self._told[address] == beat.told else beat.whole

    def taken(self, address: str, beat: Beat, ext: Mapping[str, str]) -> None:
        """Record that a broker accepted a heartbeat; `ext` has the header fields of its response."""
        if beat.told is not None and ext.get(SUPPORTED) == "true" and ext.get(CHANGED) == "false":
            self._told[address] = beat.told
        else:
            self.forget(address)

    def forget(self, address: str | None = None) -> None:
        """Send the whole heartbeat to the broker at `address` next time, or to each broker."""
        if address is None:
            self._told.clear()
        else:
            self._told.pop(address, None)


def fingerprint(beat: bodies.HeartbeatData) -> int:
    """A hash of the heartbeat without client id and versions, computed like Java's hash of a string; never 0,
    which means none.

    Members of a group have the same one if their clients have the same groups.
    """
    consumers = [replace(each, subscriptions=_comparable(each)) for each in beat.consumers]
    bare = replace(
        beat,
        client_id="",
        producers=tuple(sorted(beat.producers, key=lambda one: one.group)),
        consumers=tuple(sorted(consumers, key=lambda one: one.group)),
    )
    return java_hash(bare.encode().decode()) or 1


def _comparable(consumer: bodies.ConsumerData) -> tuple[SubscriptionData, ...]:
    """Subscriptions in order of topic, without versions. The expression also contains the tags."""
    found = sorted(consumer.subscriptions, key=lambda one: one.topic)
    return tuple(dataclasses.replace(one, version=0, tags=frozenset()) for one in found)
