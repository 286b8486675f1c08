"""The files of 4.x access control: read, watched, and changed by admin requests (remoting:2.7, 7.2).

`plain_acl.yml` holds the global white list and accounts; files in `acl/` beside it hold more accounts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.access.address_patterns import Matches, address_pattern
from sparrowmq.broker.access.plain_acl import PlainAcl, parse_account
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import SettingsError
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import DataVersion
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.broker")

MAIN: Final = "plain_acl.yml"
WHITE: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
_READ_BY_ALL: Final = 0o004
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
ADDRESSES_TOGETHER: Final = 100

Document = dict[str, Any]
Stamp = tuple[int, int, int]


class AclFiles:
    """Access control from the files of `directory`; `refresh` reads changed files again.

    Changes may be made in any thread, one at a time; the loop reads `acl`, which is replaced as a whole. It
    is created when the broker starts; an invalid file then prevents the start. Later, an invalid file is
    logged and changes nothing. `rules` are the switches of `PlainAcl`. Raises `SettingsError` naming the
    file.
    """

    def __init__(self, directory: Path, clock: Clock, **rules: bool) -> None:
        self.directory = directory
        self._rules = rules
        self.main = directory / MAIN
        self._clock = clock
        self._occasional = OccasionalLog(log)
        self._stamps = self._look()
        if not self._stamps:
            raise SettingsError(
                f"aclEnable=true, but there is no {self.main}; create it with globalWhiteRemoteAddresses "
                f"and accounts, at least one of them with admin: true"
            )
        self._documents = self._read()
        self.acl = self._acl(self._documents)
        self._warn_of_open_files()

    def __repr__(self) -> str:
        return f"<AclFiles {self.directory} {len(self.acl.accounts)} accounts>"

    @property
    def are_stale(self) -> bool:
        """Whether files were changed, added or removed."""
        return self._look() != self._stamps

    def refresh(self) -> None:
        """Load files that were changed, added or removed."""
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            documents = self._read()
            acl = self._acl(documents)
        except SettingsError as error:
            self._occasional.write(
                logging.ERROR,
                "acl",
                f"access control files changed but cannot be used; the previous ones stay in force: {error}",
            )
            return
        self._stamps, self._documents, self.acl = stamps, documents, acl
        self._warn_of_open_files()
        log.info("access control files reloaded: %d accounts", len(acl.accounts))

    def _warn_of_open_files(self) -> None:
        for path in self._documents:
            with suppress(OSError):
                if disk.stat(path).st_mode & _READ_BY_ALL:
                    log.warning(
                        "every user of this machine can read the secrets in %s; type: chmod o= %s", path, path
                    )

    def _acl(self, documents: Mapping[Path, Document]) -> PlainAcl:
        accounts, white = {}, []
        for path, document in documents.items():
            try:
                white += _white(document.get(WHITE) or ())
                for entry in document.get(ACCOUNTS) or ():
                    account = parse_account(entry)
                    if account.access_key in accounts:
                        raise SettingsError(f"the account {account.access_key!r} is defined twice")
                    accounts[account.access_key] = account
            except SettingsError as error:
                raise SettingsError(f"{path}: {error}") from None
        return PlainAcl(accounts, white, **self._rules)

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
        """Remove an account from its file. Raises `SettingsError` when there is none."""
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
        if self.are_stale:
            documents = self._read()
            self._acl(documents)  # a file that was just broken is not changed further
        else:
            documents = dict(self._documents)
        document = documents[path] = dict(documents.get(path, {}))
        if ACCOUNTS in document:
            document[ACCOUNTS] = list(document[ACCOUNTS])
        change(document)
        version = _version(document).bumped(self._clock.now_ms())
        document[VERSION] = [{"counter": str(version.counter), "timestamp": str(version.timestamp)}]
        acl = self._acl(documents)
        data = b"".join(_pieces(document))
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(
                f"{path} would have {len(data)} bytes, the limit is {FILE_BYTES_MAX}; move accounts to files "
                f"in {self.directory / 'acl'}"
            )
        try:
            disk.make_directory(path.parent)
            disk.replace(path, data, path.with_name(path.name + ".bak"), mode=0o600)
        except OSError as error:
            raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
        self._stamps, self._documents, self.acl = self._look(), documents, acl

    def _paths(self) -> list[Path]:
        try:
            found = [entry.path for entry in disk.entries(self.directory / "acl")]
        except OSError:
            found = []
        return [self.main, *(path for path in found if path.suffix in (".yml", ".yaml"))]

    def _look(self) -> list[tuple[Path, Stamp]]:
        stamps = []
        for path in self._paths():
            try:
                stat = disk.stat(path)
            except OSError:
                continue
            stamps.append((path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)))
        return stamps

    def _read(self) -> dict[Path, Document]:
        return {path: _document(path) for path in self._paths() if disk.exists(path)}


def _document(path: Path) -> Document:
    """A YAML file with every scalar as text: a secret such as 0012345678 must not change."""
    import yaml

    try:
        data = disk.read(path)
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


def _pieces(document: Document) -> Iterator[bytes]:
    """The text of a file, one account or a few addresses at a time, so that the loop can run in between."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, if compiled in

    def text(value: Any) -> bytes:
        made: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True)
        return made.encode()

    for name, value in document.items():
        if not isinstance(value, list) or not value:
            yield text({name: value})
            continue
        yield f"{name}:\n".encode()
        together = 1 if name == ACCOUNTS else ADDRESSES_TOGETHER
        for at in range(0, len(value), together):
            yield text(value[at : at + together])


def _white(addresses: Iterable[Any]) -> list[Matches]:
    return [address_pattern(str(address)) for address in addresses]


def _version(document: Document) -> DataVersion:
    try:
        entry = document[VERSION][0]
        return DataVersion(int(entry["counter"]), 0, int(entry["timestamp"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return DataVersion()
