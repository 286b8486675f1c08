"""The key-value tables: all that a name server keeps on disk, as RocketMQ's `kvConfig.json` (broker:1.4)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import JavaJsonError, StoreCorruptError, StoreError
from sparrowmq.protocol.java_json import dumps, loads

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The name space whose values say how many queues an ordered topic has on which broker."""

Table = dict[str, dict[str, str]]

logger = logging.getLogger("sparrowmq.nameserver")


class KeyValues:
    """Values by name space and key. A change is on disk before it is in force.

    Without a path nothing is kept. `load` raises `StoreError`, changes do when the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._table: Table = {}
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<KeyValues {self.path or 'in memory'}, {len(self._table)} name spaces>"

    def load(self) -> None:
        """Read the file; when it is damaged, the one before it. A missing file is an empty table."""
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
        """Set a value."""
        async with self._changing:
            await self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Take a key out; a missing one is no fault."""
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
    data: Any = loads(path.read_bytes())
    table = data.get("configTable") if isinstance(data, Mapping) else None
    if not isinstance(table, Mapping) or not all(isinstance(part, Mapping) for part in table.values()):
        raise ValueError('it has no "configTable" of name spaces')
    return {name: {str(k): str(v) for k, v in part.items()} for name, part in table.items()}


def _write(path: Path, table: Table) -> None:
    """Write beside, keep the old file as `.bak`, move over: at every moment one whole file is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(dumps({"configTable": table}))
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        shutil.copyfile(path, _backup(path))
    beside.replace(path)
