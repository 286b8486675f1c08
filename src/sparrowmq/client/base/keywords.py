"""Settings given as keyword arguments of clients."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.errors import SettingsError

S = TypeVar("S", bound=ClientSettings)


def with_keywords(settings: S, given: Mapping[str, Any]) -> S:
    """`settings` with the values of `given`; None leaves a setting as it is. `name_server` is another name of
    `namesrv`.

    Raises TypeError for an unknown name, as a call does, and `SettingsError`.
    """
    values = {name: value for name, value in given.items() if value is not None}
    known = {item.name for item in fields(settings)}
    for name in given.keys() - known - {"name_server"}:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; see the fields of {type(settings).__name__}"
        raise TypeError(f"there is no keyword argument or setting {name!r}{hint}")
    address = values.pop("name_server", None)
    if address is not None and values.setdefault("namesrv", address) != address:
        raise SettingsError(
            f"name_server={address!r} and namesrv={values['namesrv']!r} differ; give one of them"
        )
    return replace(settings, **values) if values else settings
