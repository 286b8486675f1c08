"""Accounts of RocketMQ 4.x imported into the users of a broker that does not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparrowmq.broker.access.acl_import import Imported, import_accounts
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import BrokerSettings, Layer, load
from sparrowmq.files import disk
from sparrowmq.runtime.configure import Sources, broker_texts
from sparrowmq.store.base.store_lock import StoreLock

FORMER: Final = frozenset({"aclEnable", "aclPath", "whiteAddressesAreAdmin"})
"""Settings of the accounts themselves. A configuration that still has them is read without them."""


def import_acl(files: Sequence[Path], sources: Sources, *, dry_run: bool) -> tuple[Imported, Path]:
    """Add the accounts of the files to the users of the broker with these settings.

    Returns what was added, or would be with `dry_run`, and the directory of users. Raises `SettingsError` for
    an invalid file, `StoreLockedError` while the broker runs, the `StoreError` family for the disk.
    """
    texts = {name: text for name, text in broker_texts(sources).items() if name not in FORMER}
    settings, _ = load(BrokerSettings, [Layer("settings", texts)])
    found = import_accounts({str(path): _read(path) for path in files})
    with _stopped(settings.store_path_root_dir):
        store = AuthStore(settings.auth_directory)
        added = found.without(store.tables.users)
        if added.users and not dry_run:
            store.add(added.users, added.acls)
    return added, settings.auth_directory


def _read(path: Path) -> bytes:
    try:
        return disk.read(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


@contextmanager
def _stopped(root: Path) -> Iterator[None]:
    """Keep the broker from starting meanwhile: a running one would overwrite the files."""
    lock = StoreLock.take(root) if disk.exists(root) else None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
