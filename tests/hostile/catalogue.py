"""All servers of the hostile load, and all entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hostile.companions import companions
from tests.hostile.coordinator_entries import api_entries, member_entries
from tests.hostile.entries import entries
from tests.hostile.proxy_entries import proxy_entries
from tests.hostile.shapes import Entry
from tests.hostile.size import Size
from tests.hostile.world import World, servers


def all_entries() -> list[Entry]:
    """Those of the brokers and the name server come first."""
    return [*entries(), *member_entries(), *api_entries(), *proxy_entries()]


@contextmanager
def all_servers(size: Size, root: Path) -> Iterator[dict[str, World]]:
    """Every server, each in a process of its own."""
    with servers(size, root) as worlds, companions(size, root) as others:
        yield worlds | others
