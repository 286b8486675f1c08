"""The key-value tables, the only data that a name server saves: RocketMQ's `kvConfig.json` (broker:1.4)."""

from __future__ import annotations

import asyncio
import logging
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import JavaJsonError, NoRoomError, StoreCorruptError, StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.java_json import dumps, loads

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The name space whose values give the number of queues of an ordered topic on each broker."""

KEYS_MAX: Final = 10_000
"""Maximum number of keys of all name spaces together."""
CHARS_MAX: Final = 8 * 1024 * 1024
"""Maximum total length of all name spaces, keys and values."""

Table = dict[str, dict[str, str]]

logger = logging.getLogger("sparrowmq.nameserver")


class KeyValues:
    """Values by name space and key. A change is on disk before it takes effect.

    Without a path nothing is saved. `load` raises `StoreError`, and so do changes when the file cannot be
    written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._table: Table = {}
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<KeyValues {self.path or 'in memory'}, {len(self._table)} name spaces>"

    def load(self) -> None:
        """Read the file, or the backup if it is damaged. A missing file is an empty table."""
        if self.path is None:
            return
        faults = []
        for path in (self.path, _backup(self.path)):
            try:
                self._table = _read(path)
            except FileNotFoundError:
                continue
            except (OSError, JavaJsonError, ValueError) as error:
                faults.append(f"{path}: {error}")
            else:
                if faults:
                    logger.warning("using %s, because %s", path, faults[0])
                return
        if faults:
            raise StoreCorruptError(
                f"the key-value tables cannot be read ({'; '.join(faults)}); repair the file or move it away"
            )

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str]:
        """All keys and values of a name space; empty when there is none."""
        return dict(self._table.get(name, {}))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises `NoRoomError` when the limit of values or characters is exceeded."""
        async with self._changing:
            table = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
            keys = sum(map(len, table.values()))
            chars = sum(
                len(name) + sum(map(len, values)) + sum(map(len, values.values()))
                for name, values in table.items()
            )
            if keys > KEYS_MAX or chars > CHARS_MAX:
                raise NoRoomError(
                    f"the key-value tables would have {keys} keys and {chars} characters, and the limits are "
                    f"{KEYS_MAX} and {CHARS_MAX}: delete some keys first",
                    limit=KEYS_MAX if keys > KEYS_MAX else CHARS_MAX,
                )
            await self._replace(table)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a key; a missing one is not an error."""
        async with self._changing:
            if key not in self._table.get(namespace, {}):
                return
            rest = {k: v for k, v in self._table[namespace].items() if k != key}
            others = {name: values for name, values in self._table.items() if name != namespace}
            await self._replace({**others, namespace: rest} if rest else others)

    async def _replace(self, table: Table) -> None:
        if self.path is not None:
            try:
                await asyncio.to_thread(_write, self.path, table)
            except OSError as error:
                raise StoreError(
                    f"the key-value tables cannot be written to {self.path}: {error.strerror or error}; "
                    "nothing was changed"
                ) from None
        self._table = table


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _read(path: Path) -> Table:
    data: Any = loads(disk.read(path).removeprefix(BOM_UTF8))
    table = data.get("configTable") if isinstance(data, Mapping) else None
    if not isinstance(table, Mapping) or not all(isinstance(part, Mapping) for part in table.values()):
        raise ValueError('it has no "configTable" of name spaces')
    return {name: {str(k): str(v) for k, v in part.items()} for name, part in table.items()}


def _write(path: Path, table: Table) -> None:
    """Replace the file; the previous version becomes `.bak`: at every moment one of the two is intact."""
    disk.make_directory(path.parent)
    disk.replace(path, dumps({"configTable": table}), _backup(path))
