"""Messages of push consumers: fields that few handlers read are decoded on first access.

Decoding the properties takes as long as decoding the rest of a message, and many handlers read only the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparrowmq.core.message import PROPERTY_CONSUME_START_TIME, ReceivedMessage
from sparrowmq.protocol.properties import decode


class LazyMessage(ReceivedMessage):
    """A `ReceivedMessage` whose properties and offset id may still be undecoded bytes.

    Created like its base class, or by `decoding`, which fills the slots of a new object.
    """

    __slots__ = ("_bounds", "_offset_id", "_properties", "_raw", "_store_host", "started_ms")

    started_ms: int
    """Epoch milliseconds at which a handler received it; 0 before (client:D.9)."""
    _bounds: Mapping[str, str]
    _offset_id: str | None
    _properties: dict[str, str] | None
    _raw: bytes
    _store_host: bytes

    def __init__(self, *values: Any, **named: Any) -> None:
        self.started_ms = 0
        super().__init__(*values, **named)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including RocketMQ's."""
        found = self._properties
        if found is None:
            found = decode(self._raw)
            found.update(self._bounds)
            if self.started_ms:
                found[PROPERTY_CONSUME_START_TIME] = str(self.started_ms)
            self._properties = found
        return found

    @properties.setter
    def properties(self, properties: dict[str, str]) -> None:
        self._properties = properties

    @property
    def offset_message_id(self) -> str:
        """The store's address and the physical offset, as text."""
        found = self._offset_id
        if found is None:
            found = self._offset_id = f"{self._store_host.hex().upper()}{self.physical_offset:016X}"
        return found

    @offset_message_id.setter
    def offset_message_id(self, text: str) -> None:
        self._offset_id = text

    def begin(self, now_ms: int) -> None:
        """Record that a handler receives it now."""
        self.started_ms = now_ms
        if self._properties is not None:
            self._properties[PROPERTY_CONSUME_START_TIME] = str(now_ms)
