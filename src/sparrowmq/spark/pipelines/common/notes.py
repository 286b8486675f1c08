"""Notes of pipelines: JSON values with a version. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparrowmq.core.errors import SettingsError


@contextmanager
def reading(
    what: str, where: object, error: type[SettingsError], *, name: str = "", lost: str = ""
) -> Iterator[None]:
    """Within the block a note is read. Raises `error` naming `where` if the note does not fit; `lost` says
    what happens without it.
    """
    try:
        yield
    except error:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        text = f"{where} cannot be read as {what}; restore it from a copy{lost}"
        raise error(text, what=name, value=where) from None


def check_version(note: Mapping[str, Any], version: int, where: object, error: type[SettingsError]) -> None:
    """Raise `error` naming `where` if another release wrote the note."""
    found = note["version"]
    if found != version:
        raise error(
            f"{where} has version {found}, but this release reads version {version}: use a newer release",
            what="version",
            value=found,
            limit=version,
        )


def check_asked(
    now: Mapping[str, Any], before: Mapping[str, Any], what: str, other: str, error: type[SettingsError]
) -> None:
    """Raise `error` unless the settings of now equal those with which `what` was started."""
    for name, value in now.items():
        if before.get(name) != value:
            raise error(
                f"{what} with {name}={before.get(name)!r}, not {value!r}: continue with the original "
                f"settings, or give {other}",
                name,
                value,
                limit=before.get(name),
            )
