"""The messages of the gRPC API as classes of protobuf, its enumerations, and its methods.

They use a separate descriptor pool, so that a process may also load another package's definition of the same
names. The types are dynamic: to type checkers they are `Any`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

from sparrowmq.proxy.definition.reader import read_definition

FILE_NAME: Final = "messaging_v2.proto"
SERVICE: Final = "apache.rocketmq.v2.MessagingService"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the service: its name, the classes of its messages, and which side streams."""

    name: str
    request: Any
    response: Any
    request_stream: bool
    response_stream: bool


def _load() -> Any:
    """The file's descriptor, in a new pool."""
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, timestamp_pb2):
        described = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(described)
        pool.Add(described)
    text = files(__package__).joinpath(FILE_NAME).read_text(encoding="utf-8")
    pool.Add(read_definition(text, FILE_NAME))
    return pool.FindFileByName(FILE_NAME)


FILE: Final[Any] = _load()


class _Messages:
    """The message classes by name: `messages.Settings()`."""

    def __getattr__(self, name: str) -> Any:
        found = FILE.message_types_by_name.get(name)
        if found is None:
            raise AttributeError(f"the gRPC API has no message {name!r}")
        made = message_factory.GetMessageClass(found)
        setattr(self, name, made)  # the next look-up finds it at once
        return made


class Numbers:
    """The members of an enumeration by name, as numbers: `Code.OK`."""

    def __init__(self, name: str) -> None:
        self._names: dict[int, str] = {}
        for value in FILE.enum_types_by_name[name].values:
            setattr(self, value.name, value.number)
            self._names[value.number] = value.name

    def __getattr__(self, name: str) -> int:
        raise AttributeError(f"the enumeration has no member {name!r}")

    def name(self, number: int) -> str:
        """The name of a member; the number as text for one that is not known."""
        return self._names.get(number, str(number))


v2: Final[Any] = _Messages()
Code: Final = Numbers("Code")
Permission: Final = Numbers("Permission")
MessageType: Final = Numbers("MessageType")
AddressScheme: Final = Numbers("AddressScheme")
FilterType: Final = Numbers("FilterType")
ClientType: Final = Numbers("ClientType")
DigestType: Final = Numbers("DigestType")
Encoding: Final = Numbers("Encoding")
Resolution: Final = Numbers("TransactionResolution")
Source: Final = Numbers("TransactionSource")
OffsetPolicy: Final = Numbers("QueryOffsetPolicy")


def methods() -> list[Method]:
    """Every method of the service, in the order of the definition."""
    return [
        Method(
            one.name,
            message_factory.GetMessageClass(one.input_type),
            message_factory.GetMessageClass(one.output_type),
            one.client_streaming,
            one.server_streaming,
        )
        for one in FILE.services_by_name["MessagingService"].methods
    ]
