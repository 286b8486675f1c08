"""File systems for tests: one in memory that fails on demand, and one of Hadoop's that is no local path."""

from __future__ import annotations

import itertools
from pathlib import Path

from pyspark.sql import SparkSession

_MOUNTS = itertools.count()


class MemoryFiles:
    """`Files` in a dictionary. The fault `torn` cuts the next file that is made short, as a killed writer
    does; `lost` makes the next one and says that it was there.
    """

    def __init__(
        self,
        location: str = "mem:/archive",
        store: dict[str, str] | None = None,
        faults: set[str] | None = None,
    ) -> None:
        self.location = location
        self.store = {} if store is None else store
        self.faults = set() if faults is None else faults

    def _key(self, name: str) -> str:
        return f"{self.location}/{name}".rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        prefix = f"{self._key(folder)}/"
        return sorted(
            {key.removeprefix(prefix).partition("/")[0] for key in self.store if key.startswith(prefix)}
        )

    def read(self, name: str) -> str | None:
        return self.store.get(self._key(name))

    def create(self, name: str, text: str) -> bool:
        if self._key(name) in self.store:
            return False
        faults = set(self.faults)
        self.faults.clear()
        self.store[self._key(name)] = text[: len(text) // 2] if "torn" in faults else text
        return "lost" not in faults

    def replace(self, name: str, text: str) -> None:
        self.store[self._key(name)] = text

    def delete(self, name: str) -> None:
        for key in [
            key for key in self.store if key == self._key(name) or key.startswith(f"{self._key(name)}/")
        ]:
            del self.store[key]

    def size(self, folder: str) -> int:
        return sum(len(text) for key, text in self.store.items() if key.startswith(f"{self._key(folder)}/"))

    def at(self, folder: str) -> MemoryFiles:
        return MemoryFiles(self._key(folder), self.store, self.faults)


def mounted(spark: SparkSession, root: Path) -> str:
    """A URI under which Spark reaches a directory, and Python does not: `viewfs://…`."""
    name = f"mount{next(_MOUNTS)}"
    root.mkdir(parents=True, exist_ok=True)
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./lake", f"file:{root}")
    return f"viewfs://{name}/lake"
