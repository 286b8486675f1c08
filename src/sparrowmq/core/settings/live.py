"""Broker settings that can change while the broker runs, and their allowed values. Pure."""

from __future__ import annotations

from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import BrokerSettings, Setting, table

LIVE: Final = frozenset(
    {
        "brokerPermission",
        "cleanFileForciblyEnable",
        "defaultQueryMaxNum",
        "deleteCommitLogFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "fileReservedTime",
        "logLevel",
        "longPollingEnable",
        "maxMsgsNumBatch",
        "messageIndexEnable",
        "shortPollingTimeMills",
        "slowRequestTime",
    }
)
"""Settings that can change while the broker runs."""


def live_settings() -> list[Setting]:
    """Their rows, by name."""
    rows = table(BrokerSettings)
    return [rows[name] for name in sorted(LIVE)]


def check_live(name: str, text: str) -> str:
    """A value as it is sent to a broker. Raises `SettingsError` for a value out of range, and for a setting
    that cannot change while a broker runs, with a list of those that can.
    """
    if name not in LIVE:
        known = ", ".join(sorted(LIVE))
        raise SettingsError(f"{name[:64]!r} cannot change while a broker runs; these can: {known}", name)
    row = table(BrokerSettings)[name]
    try:
        value = row.parse(text)
    except (ValueError, KeyError):
        value = None
    if value is None or not row.allows(value) or not text.isprintable():
        raise SettingsError(f"{name}={text[:60]}: must be {row.range_text}", name, text)
    return text.strip()
