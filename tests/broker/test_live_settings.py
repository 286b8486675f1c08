"""Every setting that operators change while the broker runs takes effect at each part that reads it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any, Final

import pytest
from tests.broker.rig import Rig
from tests.broker.test_server import settings as small_settings
from tests.support import run

import sparrowmq.broker
from sparrowmq.broker.parts import BrokerParts
from sparrowmq.broker.server import Broker
from sparrowmq.core.settings.live import LIVE
from sparrowmq.core.settings.servers import BrokerSettings, table
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient

BROKER: Final = Path(sparrowmq.broker.__file__).parent
ROWS: Final = table(BrokerSettings)
CHANGED: Final = {
    "brokerPermission": "4",
    "cleanFileForciblyEnable": "false",
    "defaultQueryMaxNum": "7",
    "deleteCommitLogFilesInterval": "77",
    "deleteFileBatchMax": "7",
    "deleteWhen": "07",
    "diskMaxUsedSpaceRatio": "77",
    "diskSpaceCleanForciblyRatio": "87",
    "fileReservedTime": "7",
    "logLevel": "INFO,sparrowmq.store=DEBUG",
    "longPollingEnable": "false",
    "maxMsgsNumBatch": "7",
    "messageIndexEnable": "false",
    "shortPollingTimeMills": "777",
    "slowRequestTime": "7777",
}
"""A value of each setting that is not its default."""

GIVEN_ON: Final = {
    "parts.py": {"broker_permission", "log_level", "slow_request_time"},
    "upkeep.py": {"message_index_enable"},
    "server.py": {"message_index_enable", "slow_request_time"},
    "operated.py": {"broker_permission"},
    "housekeeping/cleaning.py": {
        *("clean_file_forcibly_enable", "delete_file_batch_max", "delete_when", "file_reserved_time"),
        *("disk_max_used_space_ratio", "disk_space_clean_forcibly_ratio", "delete_commit_log_files_interval"),
    },
}
"""Modules that read a setting otherwise than from `_settings` of an object: `BrokerParts` and `Upkeep` give
changes on, `Broker` reads the values of its start, `operated` the settings of `BrokerParts`, and `retention`
those of its argument."""

COPIED: Final[dict[str, Callable[[BrokerParts], Any]]] = {
    "messageIndexEnable": lambda parts: parts.store.index.enabled,
    "slowRequestTime": lambda parts: round(parts.requests._slow * 1000),
}
"""Settings of which a part keeps the value alone. `logLevel` belongs to the process and is given to it."""


def is_held(base: ast.expr) -> bool:
    """Whether it is `self._settings` or `self.settings`, or a call of it."""
    if isinstance(base, ast.Call):
        base = base.func
    return ast.unparse(base) in ("self._settings", "self.settings")


@cache
def reads(source: str) -> list[tuple[str, bool]]:
    """The live settings that a module reads, and whether from its object's own settings."""
    attributes = {ROWS[name].attribute for name in LIVE}
    tree = ast.parse(source)
    own = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for targets, value in [(node.targets[0], node.value)]
        for target, given in zip(
            targets.elts if isinstance(targets, ast.Tuple) else [targets],
            value.elts if isinstance(value, ast.Tuple) else [value],
            strict=False,
        )
        if is_held(given)
    }
    return [
        (node.attr, is_held(node.value) or ast.unparse(node.value) in own)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in attributes and isinstance(node.ctx, ast.Load)
        if "settings" in ast.unparse(node.value)
    ]


def modules() -> dict[str, str]:
    return {str(path.relative_to(BROKER)): path.read_text() for path in sorted(BROKER.rglob("*.py"))}


def objects_of(root: object) -> Iterator[object]:
    """Every object of this package that a broker's parts consist of."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, MethodType):
            one = one.__self__
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif type(one).__module__.startswith("sparrowmq.") and id(one) not in seen:
            seen.add(id(one))
            yield one
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(one, name) for name in slots if hasattr(one, name)]
            waiting += vars(one).values() if hasattr(one, "__dict__") else ()


def settings_of(one: object) -> BrokerSettings | None:
    """The settings that an object holds, or a function of which it gets them."""
    held: Any = getattr(one, "_settings", None) or getattr(one, "settings", None)
    held = held() if callable(held) else held
    return held if isinstance(held, BrokerSettings) else None


def readers(parts: BrokerParts, attribute: str) -> dict[str, BrokerSettings]:
    """The classes of a broker whose module reads a setting, with the settings that each sees."""
    given_on = {BROKER / module for module in GIVEN_ON}
    found = {}
    for one in objects_of(parts):
        path = Path(inspect.getfile(type(one)))
        held = None if path in given_on else settings_of(one)
        if held is not None and (attribute, True) in reads(path.read_text()):
            found[type(one).__name__] = held
    return found


def test_each_has_a_value_to_try() -> None:
    assert CHANGED.keys() == LIVE
    defaults = BrokerSettings()
    assert [name for name, text in CHANGED.items() if of(defaults, name) == ROWS[name].parse(text)] == []


def of(settings: BrokerSettings, name: str) -> Any:
    return getattr(settings, ROWS[name].attribute)


def test_whoever_keeps_a_copy_is_named() -> None:
    """A part that copies a setting when it is made does not see later changes."""
    found: dict[str, set[str]] = {}
    for module, source in modules().items():
        for attribute, own in reads(source):
            if not own or module in GIVEN_ON:
                found.setdefault(module, set()).add(attribute)
    assert {module: found.get(module, set()) >= names for module, names in GIVEN_ON.items()} == dict.fromkeys(
        GIVEN_ON, True
    )
    assert found.keys() == GIVEN_ON.keys(), (
        "read settings where operators' changes arrive, or name the reader"
    )


@pytest.mark.parametrize("name", sorted(LIVE))
def test_change_is_seen_by_each_reader(name: str, tmp_path: Path) -> None:
    levels: list[str] = []

    async def main() -> None:
        broker = Broker(small_settings(tmp_path), log_levels=levels.append)
        await broker.start()
        client = RemotingClient()
        try:
            command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"{name}={CHANGED[name]}".encode())
            answer = await client.call(broker.address, command, 5.0)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            parts, expected = broker.parts, ROWS[name].parse(CHANGED[name])
            assert of(broker.settings, name) == expected
            seen = {one: of(held, name) for one, held in readers(parts, ROWS[name].attribute).items()}
            if name in COPIED:
                seen["copy"] = COPIED[name](parts)
            if ROWS[name].attribute in GIVEN_ON["housekeeping/cleaning.py"]:
                seen["Cleaner"] = of(parts.upkeep.cleaner.settings, name)
            if name == "logLevel":
                seen["process"] = levels[-1]
            assert seen, "nobody reads it"
            assert seen == dict.fromkeys(seen, expected)
        finally:
            await client.close()
            await broker.close()

    run(main())


def test_readers_of_the_permission_are_found(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    found = readers(rig.parts, "broker_permission")
    rig.close()
    assert found.keys() >= {"PullPath", "PopChecks", "SendBackRequests"}
