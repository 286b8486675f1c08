"""The data directory of servers, which other users of the machine cannot access."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.files import disk

_OURS: Final = re.compile(r"store(-[b-z])?|namesrv|coordinator\.db(-wal|-shm|-journal)?")
"""Names that servers create there. A directory with anything else belongs to the user, and its permissions
are kept.
"""


def stores_left_out(stores: Iterable[Path]) -> list[str]:
    """A warning about stores that exist and that no broker of this start serves, if any."""
    found = [store for store in stores if disk.exists(store)]
    if not found:
        return []
    names = ", ".join(str(store.absolute()) for store in found)
    return [f"not served: {names}; messages there can be read again once --brokers is high enough"]


def prepare_data(root: Path) -> list[str]:
    """Create the data directory, or restrict one that only servers use. Returns a warning, if any.

    It contains messages and credentials. Raises `SettingsError` when it cannot be created.
    """
    try:
        disk.make_private_directory(root)
        is_ours = all(_OURS.fullmatch(one.name) for one in disk.entries(root))
        if is_ours and disk.restrict(root):
            return [
                f"{root.absolute()} was open to other users of this machine; its permissions are "
                "now restricted"
            ]
    except OSError as error:
        raise SettingsError(
            f"{root} cannot be used for data: {error.strerror}; give another directory with --data",
            "--data",
            root,
        ) from None
    return []
