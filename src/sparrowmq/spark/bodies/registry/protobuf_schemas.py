"""Protobuf files of a registry as the descriptor set that `protoc` would write, and lookup of messages by
index.

Files come as descriptors (`format=serialized`), so nothing needs to be compiled. Google's own files
(timestamps and the like) come from the library.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.registry.client import Registered, RegistryError

_GOOGLES: Final = "google/protobuf/"
ROOT: Final = "registered.proto"


def descriptor_set(found: Registered) -> bytes:
    """All files of a schema, dependencies first. Raises `RegistryError`, `SettingsError`."""
    files = _files(found)
    made = _library().FileDescriptorSet()
    there = {file.name for file in files}
    needed = [name for file in files for name in file.dependency if name not in there]
    for name in dict.fromkeys(needed):
        _add_googles(made, name, there)
    made.file.extend(files)
    result: bytes = made.SerializeToString()
    return result


def message_name(found: Registered, indexes: Sequence[int]) -> str:
    """The full name of a message by its place in the file, and in the messages around it.

    Raises `RegistryError` if the file cannot be read, `ValueError` if the file has no such place.
    """
    root = _files(found)[-1]
    names, messages = [root.package] if root.package else [], root.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message at {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _library() -> Any:
    try:
        return import_module("google.protobuf.descriptor_pb2")
    except ImportError:
        raise SettingsError("bodyFormat=protobuf needs protobuf: pip install 'sparrowmq[protobuf]'") from None


def _files(found: Registered) -> list[Any]:
    """The referenced files, followed by the schema's own."""
    if found.kind != "PROTOBUF":
        raise RegistryError(f"the registry has a schema of type {found.kind}, not PROTOBUF")
    made = []
    for name, text in (*found.references, (ROOT, found.text)):
        file = _library().FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(text, validate=True))
        except Exception:  # the class depends on the implementation
            raise RegistryError(
                f"the registry returned no descriptor of {name}: it must support format=serialized for "
                f"Protobuf"
            ) from None
        file.name = name
        made.append(file)
    return made


def _add_googles(made: Any, name: str, there: set[str]) -> None:
    if name in there:
        return
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not name.startswith(_GOOGLES):
        raise RegistryError(f"a Protobuf schema imports {name}, which the registry did not return with it")
    try:
        data = import_module(module).DESCRIPTOR.serialized_pb
    except ImportError:
        raise RegistryError(f"a Protobuf schema imports {name}, which is unknown") from None
    file = _library().FileDescriptorProto()
    file.ParseFromString(data)
    for other in file.dependency:
        _add_googles(made, other, there)
    there.add(name)
    made.file.append(file)
