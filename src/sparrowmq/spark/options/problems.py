"""The errors of options that do not fit together: their wording, and what they are about."""

from __future__ import annotations

from sparrowmq.core.errors import SettingsError


def needs(name: str, other: str, value: object = None, *, why: str = "") -> SettingsError:
    """The option `name` has no use without `other`; `why` follows the name of that one."""
    shown = "" if value is None else f"={value!r}"
    return SettingsError(f"option {name}{shown} needs the option {other}{why}", name, value, other=other)


def half(missing: str, given: str) -> SettingsError:
    """Only one of two options that belong together is given."""
    wording = f"option {missing} is missing: {given} and {missing} must be given together"
    return SettingsError(wording, missing, other=given)


def both(name: str, other: str, *, why: str = "") -> SettingsError:
    """Two options are given that exclude each other."""
    return SettingsError(
        f"options {name} and {other} are both given; {why or 'leave one out'}", name, other=other
    )


def other_format(name: str, formats: tuple[str, ...], given: str) -> SettingsError:
    """An option is for other formats of bodies."""
    *others, last = formats
    known = f"{', '.join(others)} or {last}" if others else last
    wording = f"option {name} is for bodyFormat={known}, not {given}"
    return SettingsError(wording, name, other="bodyFormat")


def above(name: str, value: int, other: str, limit: int) -> SettingsError:
    """An option is above the one that limits it."""
    wording = f"option {name}={value}: must be at most {other}={limit}"
    return SettingsError(wording, name, value, limit=limit, other=other)


def of_clusters(name: str, store: str) -> SettingsError:
    """An option chooses a part of a cluster's topics, and a store is read."""
    wording = (
        f"option {name} is for reads of a cluster, but store={store!r} is given; leave one out. To read part "
        "of a store use subscribe, tags, startingTimestamp and endingTimestamp"
    )
    return SettingsError(wording, name, other="store")
