"""What heartbeats say: all, or all but the subscriptions that a broker knows already (client:A-56, A-63).

The latter is version 2, which is off unless it is asked for: a fingerprint goes along, and a broker that has
seen it answers that nothing changed. Who loses a connection, or is told that something changed, tells all
again. RocketMQ's client leaves versions of subscriptions out of the fingerprint, so that all members of a
group have the same, and notes by itself when they must be told; so does this one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData

SUPPORTED: Final = "IS_SUPPORT_HEART_BEAT_V2"
CHANGED: Final = "IS_SUB_CHANGE"

Told = tuple[int, tuple[int, ...]]
"""A fingerprint, and the versions of the subscriptions it leaves out."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The bodies of one heartbeat: `whole`, and `short` for brokers that were `told`; None in version 1."""

    whole: bytes
    short: bytes = b""
    told: Told | None = None


class Heartbeats:
    """Makes the heartbeats of one client, and knows what brokers know of it."""

    def __init__(self, client_id: str, *, version_2: bool) -> None:
        self._client_id = client_id
        self._version_2 = version_2
        self._told: dict[str, Told] = {}

    def beat(self, producers: Iterable[str], consumers: Sequence[ConsumerData]) -> Beat:
        """The heartbeat of these groups."""
        names = tuple(ProducerData(group) for group in producers)
        whole = HeartbeatData(self._client_id, names, tuple(consumers))
        if not self._version_2:
            return Beat(whole.encode())
        told = fingerprint(whole), tuple(one.version for each in consumers for one in each.subscriptions)
        whole = replace(whole, fingerprint=told[0])
        bare = tuple(replace(each, subscriptions=()) for each in consumers)
        return Beat(whole.encode(), replace(whole, consumers=bare, without_sub=True).encode(), told)

    def body(self, address: str, beat: Beat) -> bytes:
        """What is sent to the broker at `address`."""
        return beat.short if address in self._told and self._told[address] == beat.told else beat.whole

    def taken(self, address: str, beat: Beat, ext: Mapping[str, str]) -> None:
        """A broker took a heartbeat; `ext` are the header fields of its answer."""
        if beat.told is not None and ext.get(SUPPORTED) == "true" and ext.get(CHANGED) == "false":
            self._told[address] = beat.told
        else:
            self.forget(address)

    def forget(self, address: str | None = None) -> None:
        """The broker at `address`, or each, must be told all with the next one."""
        if address is None:
            self._told.clear()
        else:
            self._told.pop(address, None)


def fingerprint(beat: HeartbeatData) -> int:
    """What a heartbeat says but for client id and versions, as Java's hash of a text; never 0, which is none.

    Members of a group have the same one when their clients have the same groups.
    """
    consumers = [replace(each, subscriptions=_comparable(each)) for each in beat.consumers]
    bare = replace(
        beat,
        client_id="",
        producers=tuple(sorted(beat.producers, key=lambda one: one.group)),
        consumers=tuple(sorted(consumers, key=lambda one: one.group)),
    )
    return java_hash(bare.encode().decode()) or 1


def _comparable(consumer: ConsumerData) -> tuple[SubscriptionData, ...]:
    """Subscriptions in order of topic, without versions; tags stand in the expression, too."""
    found = sorted(consumer.subscriptions, key=lambda one: one.topic)
    return tuple(dataclasses.replace(one, version=0, tags=frozenset()) for one in found)
