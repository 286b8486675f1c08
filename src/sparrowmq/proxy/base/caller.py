"""The caller, as the metadata of a call describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.proxy.definition.messages import Code

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
CLIENT_VERSION: Final = "x-mq-client-version"
CLIENT_ID_CHARS_MAX: Final = 255


class CallMemory(Protocol):
    """The memory that a call uses in the proxy."""

    @property
    def is_short(self) -> bool:
        """Whether memory is full and this client uses some of it, so that it gets no large answers now."""

    def hold(self, size: int) -> None:
        """Count bytes that are kept for this call; a negative size releases them."""


class Answer(Protocol):
    """Where the answer to a unary call goes; one of its methods is called once."""

    def respond(self, response: Any) -> None:
        """Answer with a response."""

    def refuse(self, error: Exception) -> None:
        """Answer with the status of an error."""


@dataclass(slots=True)
class GrpcCaller:
    """One call's client: its id, its address (`host:port`), and the seconds until its deadline."""

    client_id: str
    address: str
    remaining: float | None
    metadata: Mapping[str, str] = field(repr=False)
    memory: CallMemory = field(repr=False)
    account: str = ""
    """The user that signed the call; empty where calls are not signed."""

    @property
    def host(self) -> str:
        """The client's host, without port and brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    def need_memory(self) -> None:
        """Raise `ProxyRefusal` when memory is full and this client uses some of it."""
        if self.memory.is_short:
            raise ProxyRefusal(
                Code.TOO_MANY_REQUESTS,
                "what clients have asked for and not read fills the proxy's memory; try again",
            )
