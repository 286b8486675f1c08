"""The notation for changes of a topic's attributes in requests: `+key=value,-key` (code 17)."""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.core.errors import SettingsError


def changes_text(changes: Mapping[str, str | None]) -> str | None:
    """The request field that sets these attributes and removes those with None; None without any.

    Raises `SettingsError` for a key or value that the notation cannot express.
    """
    for key, value in changes.items():
        if not key or value == "" or set(f"{key}{value or ''}") & set(",=") or set(key) & set("+-"):
            raise SettingsError(
                f"attribute {key!r} = {value!r}: a key must not contain + - , or =, and a value "
                "must not be empty or contain , or ="
            )
    parts = [f"-{key}" if value is None else f"+{key}={value}" for key, value in changes.items()]
    return ",".join(parts) or None
