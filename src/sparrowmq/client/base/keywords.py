"""Settings given as keyword arguments of clients."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.errors import SettingsError

S = TypeVar("S", bound=ClientSettings)

OTHER_NAMES: Final = {"name_server": "namesrv", "retries": "max_reconsume_times"}
"""Keywords that are other names of settings. A producer's `retries` is a setting of its own."""


def with_keywords(settings: S, given: Mapping[str, Any]) -> S:
    """`settings` with the values of `given`, which may have other names; None leaves a setting as it is.

    Raises TypeError for an unknown name, as a call does, and `SettingsError`.
    """
    values = {name: value for name, value in given.items() if value is not None}
    known = {item.name for item in fields(settings)}
    others = {other: name for other, name in OTHER_NAMES.items() if name in known and other not in known}
    for name in given.keys() - known - others.keys():
        near = difflib.get_close_matches(name, [*known, *others], 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; see the fields of {type(settings).__name__}"
        raise TypeError(f"there is no keyword argument or setting {name!r}{hint}")
    for other, name in others.items():
        value = values.pop(other, None)
        if value is not None and values.setdefault(name, value) != value:
            text = f"{other}={value!r} and {name}={values[name]!r} differ; give one of them"
            raise SettingsError(text, other, value, other=name)
    return replace(settings, **values) if values else settings
