"""The files of 4.x access control: read, watched, and changed on an admin's word (remoting:2.7, 7.2).

`plain_acl.yml` holds the global white list and accounts; files in `acl/` beside it hold more accounts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.acl import PlainAcl, parse_account
from sparrowmq.broker.addresses import Matches, address_pattern
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.bodies import DataVersion
from sparrowmq.store import disk
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.broker")

MAIN: Final = "plain_acl.yml"
WHITE: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024

Document = dict[str, Any]
Stamp = tuple[int, int, int]


class AclFiles:
    """The access control that the files of `directory` hold now; `refresh` looks at them again.

    Made when the broker starts, and then a file that cannot be used stops the start. Later such a file leaves
    everything as it was, with a line in the log. Raises `SettingsError` naming the file.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self.main = directory / MAIN
        self._clock = clock
        self._occasional = OccasionalLog(log)
        self._stamps = self._look()
        if not self._stamps:
            raise SettingsError(
                f"aclEnable=true, but there is no {self.main}; write it with globalWhiteRemoteAddresses and "
                "accounts, at least one of them with admin: true"
            )
        self._documents = self._read()
        self.acl = _acl(self._documents)

    def __repr__(self) -> str:
        return f"<AclFiles {self.directory} {len(self.acl.accounts)} accounts>"

    def refresh(self) -> None:
        """Take files that changed, came or went."""
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            documents = self._read()
            acl = _acl(documents)
        except SettingsError as error:
            self._occasional.write(
                logging.ERROR, "acl", f"access control changed and cannot be used; the old stays: {error}"
            )
            return
        self._stamps, self._documents, self.acl = stamps, documents, acl
        log.info("access control changed: %d accounts", len(acl.accounts))

    def versions(self) -> dict[str, DataVersion]:
        """The version of each file, by its path."""
        return {str(path): _version(document) for path, document in self._documents.items()}

    def put_account(self, changes: Mapping[str, Any]) -> None:
        """Change the account with this `accessKey`, or add it to the main file. Raises `SettingsError`."""
        key = changes["accessKey"]

        def change(document: Document) -> None:
            accounts = document.setdefault(ACCOUNTS, [])
            for index, entry in enumerate(accounts):
                if entry.get("accessKey") == key:
                    accounts[index] = {**entry, **changes}
                    parse_account(accounts[index])
                    return
            parse_account(changes)
            accounts.append(dict(changes))

        self._change(self._file_of(key) or self.main, change)

    def delete_account(self, key: str) -> None:
        """Take an account out of its file. Raises `SettingsError` when there is none."""
        path = self._file_of(key)
        if path is None:
            raise SettingsError(f"there is no account {key!r}")

        def change(document: Document) -> None:
            accounts = document.get(ACCOUNTS) or ()
            document[ACCOUNTS] = [entry for entry in accounts if entry.get("accessKey") != key]

        self._change(path, change)

    def put_white(self, addresses: list[str]) -> None:
        """Replace the global white list of the main file. Raises `SettingsError`."""
        for address in addresses:
            address_pattern(address)
        self._change(self.main, lambda document: document.update({WHITE: addresses}))

    # Inside

    def _file_of(self, key: str) -> Path | None:
        for path, document in self._documents.items():
            if any(entry.get("accessKey") == key for entry in document.get(ACCOUNTS) or ()):
                return path
        return None

    def _change(self, path: Path, change: Callable[[Document], None]) -> None:
        import yaml

        documents = self._read()
        _acl(documents)  # a file that somebody just broke is not made worse
        document = documents.setdefault(path, {})
        change(document)
        version = _version(document).bumped(self._clock.now_ms())
        document[VERSION] = [{"counter": str(version.counter), "timestamp": str(version.timestamp)}]
        acl = _acl(documents)
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            disk.replace(path, text.encode(), path.with_name(path.name + ".bak"), mode=0o600)
        except OSError as error:
            raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
        self._stamps, self._documents, self.acl = self._look(), documents, acl

    def _paths(self) -> list[Path]:
        more = self.directory / "acl"
        found = sorted(path for path in more.glob("*") if path.suffix in (".yml", ".yaml"))
        return [self.main, *found]

    def _look(self) -> list[tuple[Path, Stamp]]:
        stamps = []
        for path in self._paths():
            try:
                stat = path.stat()
            except OSError:
                continue
            stamps.append((path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)))
        return stamps

    def _read(self) -> dict[Path, Document]:
        return {path: _document(path) for path in self._paths() if path.exists()}


def _document(path: Path) -> Document:
    """A YAML file with every scalar as text: a secret such as 0012345678 must stay what it is."""
    import yaml

    try:
        data = path.read_bytes()
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(f"{path} has {len(data)} bytes, the limit is {FILE_BYTES_MAX}")
        document = yaml.load(data, Loader=yaml.BaseLoader)  # plain values only
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{where} is not YAML") from None
    if document in (None, ""):
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path} must be a mapping with {WHITE} and {ACCOUNTS}")
    unknown = sorted(set(document) - {WHITE, ACCOUNTS, VERSION})
    if unknown:
        raise SettingsError(f"{path} has unknown members: {', '.join(map(str, unknown))}")
    for name in (WHITE, ACCOUNTS):
        if document.get(name) in (None, ""):
            document.pop(name, None)
        elif not isinstance(document[name], list):
            raise SettingsError(f"{path}: {name} must be a list")
    return document


def _acl(documents: Mapping[Path, Document]) -> PlainAcl:
    accounts, white = {}, []
    for path, document in documents.items():
        try:
            white += _white(document.get(WHITE) or ())
            for entry in document.get(ACCOUNTS) or ():
                account = parse_account(entry)
                if account.access_key in accounts:
                    raise SettingsError(f"the account {account.access_key!r} stands twice")
                accounts[account.access_key] = account
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None
    return PlainAcl(accounts, white)


def _white(addresses: Iterable[Any]) -> list[Matches]:
    return [address_pattern(str(address)) for address in addresses]


def _version(document: Document) -> DataVersion:
    try:
        entry = document[VERSION][0]
        return DataVersion(int(entry["counter"]), 0, int(entry["timestamp"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return DataVersion()
