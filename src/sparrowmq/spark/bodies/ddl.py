"""Names and types of columns as text that Spark's SQL reads back as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of fields that need no quotes."""


def quoted(name: str) -> str:
    """A name in back quotes, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def ddl(columns: Mapping[str, str]) -> str:
    """A Spark schema of columns, with quoted names."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def type_ddl(kind: DataType) -> str:
    """A type as `simpleString()` shows it, but with quotes around names of fields that need them."""
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return f"array<{type_ddl(kind.elementType)}>"
    if isinstance(kind, types.MapType):
        return f"map<{type_ddl(kind.keyType)},{type_ddl(kind.valueType)}>"
    if not isinstance(kind, types.StructType):
        return kind.simpleString()
    names = [name if _PLAIN.fullmatch(name) else quoted(name) for name in kind.names]
    fields = [f"{name}:{type_ddl(field.dataType)}" for name, field in zip(names, kind.fields, strict=True)]
    return f"struct<{','.join(fields)}>"
