"""Reads the proxy's `.proto` file into a descriptor: the subset of proto3 that the file uses.

So the repository and the wheel contain the definition only as this text: there is no generated code, and
building and running need no compiler. The messages of Google's own definitions (`google.protobuf.*`) are
those of the protobuf package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

_TOKEN: Final = re.compile(r"//[^\n]*|\"[^\"]*\"|[\w.]+|[{}()<>=;,]")
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "float": _FIELD.TYPE_FLOAT,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
}
_IMPORTS: Final = ("google/protobuf/duration.proto", "google/protobuf/timestamp.proto")


def read_definition(text: str, name: str) -> Any:
    """The `FileDescriptorProto` of a definition. Raises `ValueError` naming what it does not understand."""
    return _Reader(text, name).read()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        tokens = (found[0] for found in _TOKEN.finditer(text))
        self._tokens: Iterator[str] = (token for token in tokens if not token.startswith("//"))
        self._file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3", dependency=_IMPORTS)
        self._enums: set[str] = set()
        self._messages: set[str] = set()
        self._named: list[tuple[Any, str]] = []
        """Fields with the names of their types, which may be defined later in the file."""

    def read(self) -> Any:
        for token in self._tokens:
            if token == "syntax":
                self._expect("=")
                self._expect('"proto3"')
                self._expect(";")
            elif token == "package":
                self._file.package = next(self._tokens)
                self._expect(";")
            elif token == "message":
                self._message(self._file.message_type.add(name=next(self._tokens)), "")
            elif token == "enum":
                self._enum(self._file.enum_type.add(name=next(self._tokens)), "")
            elif token == "service":
                self._service(self._file.service.add(name=next(self._tokens)))
            else:
                raise ValueError(f"{self._file.name}: {token!r} is not expected here")
        for field, type_name in self._named:
            self._resolve(field, type_name)
        return self._file

    def _expect(self, wanted: str) -> None:
        token = next(self._tokens, "the end")
        if token != wanted:
            raise ValueError(f"{self._file.name}: {token!r} where {wanted!r} is expected")

    def _number(self) -> int:
        self._expect("=")
        number = int(next(self._tokens))
        self._expect(";")
        return number

    def _enum(self, enum: Any, within: str) -> None:
        self._enums.add(within + enum.name)
        self._expect("{")
        while (name := next(self._tokens)) != "}":
            enum.value.add(name=name, number=self._number())

    def _message(self, message: Any, within: str) -> None:
        self._messages.add(within + message.name)
        optional: list[Any] = []
        self._expect("{")
        while (token := next(self._tokens)) != "}":
            if token == "enum":
                self._enum(message.enum_type.add(name=next(self._tokens)), f"{within}{message.name}.")
            elif token == "oneof":
                message.oneof_decl.add(name=next(self._tokens))
                self._expect("{")
                while (kind := next(self._tokens)) != "}":
                    self._field(message, kind).oneof_index = len(message.oneof_decl) - 1
            elif token == "map":
                self._map(message)
            elif token == "repeated":
                self._field(message, next(self._tokens)).label = _FIELD.LABEL_REPEATED
            elif token == "optional":
                optional.append(self._field(message, next(self._tokens)))
            else:
                self._field(message, token)
        for field in optional:  # as protoc does: each is the only member of a oneof that nobody sees
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, message: Any, kind: str) -> Any:
        field = message.field.add(name=next(self._tokens), label=_FIELD.LABEL_OPTIONAL)
        field.number = self._number()
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            self._named.append((field, f"{message.name}.{kind}"))
        return field

    def _map(self, message: Any) -> None:
        """A map of texts: a repeated message with a key and a value."""
        for token in ("<", "string", ",", "string", ">"):
            self._expect(token)
        field = message.field.add(name=next(self._tokens), label=_FIELD.LABEL_REPEATED)
        field.number = self._number()
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), 1):
            entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{self._file.package}.{message.name}.{entry.name}"

    def _resolve(self, field: Any, scoped: str) -> None:
        """Give a field its type: one nested in its message, one of the file, or one of Google's."""
        scope, _, kind = scoped.partition(".")
        for name in (f"{scope}.{kind}", kind):
            if name in self._enums or name in self._messages:
                field.type = _FIELD.TYPE_ENUM if name in self._enums else _FIELD.TYPE_MESSAGE
                field.type_name = f".{self._file.package}.{name}"
                return
        if not kind.startswith("google.protobuf."):
            raise ValueError(f"{self._file.name}: the type {kind!r} of {field.name!r} is not defined")
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{kind}"

    def _service(self, service: Any) -> None:
        self._expect("{")
        while next(self._tokens) != "}":
            method = service.method.add(name=next(self._tokens))
            method.input_type, method.client_streaming = self._side()
            self._expect("returns")
            method.output_type, method.server_streaming = self._side()
            self._expect(";")

    def _side(self) -> tuple[str, bool]:
        self._expect("(")
        token = next(self._tokens)
        stream = token == "stream"
        name = next(self._tokens) if stream else token
        self._expect(")")
        return f".{self._file.package}.{name}", stream
