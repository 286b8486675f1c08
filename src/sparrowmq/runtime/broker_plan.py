"""The names, ports and store directories of several brokers on one machine. Pure."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import BrokerSettings, table

BROKERS_MAX: Final = len(string.ascii_lowercase)
PORT_STEP: Final = 10
"""Distance between the ports of two brokers: RocketMQ uses the two neighbours of a port for other
purposes.
"""
REPLICAS_MAX: Final = 4
SLAVE_STEP: Final = 1000
"""Distance between the ports of a master and its first slave, larger than the range of 26 brokers."""
SLAVE_MARK: Final = "#"
"""Separates a broker name from a slave's id, as in the coordinator's lists."""
PORT_MAX: Final = 65_535
_FIRST: Final = "-a"


@dataclass(frozen=True, slots=True)
class PlannedBroker:
    """One of several brokers: its name, its store, and its settings as text under RocketMQ's names."""

    name: str
    store: Path
    texts: Mapping[str, str]


def plan_brokers(
    given: Mapping[str, str], settings: BrokerSettings, count: int, replicas: int = 1
) -> list[PlannedBroker]:
    """The settings of `count` brokers (1 to 26), derived from those of the first.

    `given` are the texts from which `settings` were loaded. The first broker keeps them. Each further one has
    its own name (`broker-a`, `broker-b`, or `x`, `x-b`), directories with the same suffix, and ports that are
    ten higher; a port of 0 stays 0. With `replicas` (1 to 4), each has `replicas` - 1 slaves with its name,
    in directories with the suffix `-slave1` and so on, at ports that are 1000, 2000 and so on higher. Raises
    `SettingsError` for ports above 65535, and if the first broker is a slave.
    """
    if not 1 <= count <= BROKERS_MAX:
        text = f"--brokers {count}: give a number from 1 to {BROKERS_MAX}"
        raise SettingsError(text, "--brokers", count, limit=BROKERS_MAX)
    if not 1 <= replicas <= REPLICAS_MAX:
        text = f"--replicas {replicas}: give a number from 1 to {REPLICAS_MAX}"
        raise SettingsError(text, "--replicas", replicas, limit=REPLICAS_MAX)
    if replicas > 1 and settings.is_slave:
        raise SettingsError(
            f"--replicas {replicas}: not possible with brokerRole=SLAVE: a slave cannot have slaves",
            "--replicas",
            replicas,
            other="brokerRole",
        )
    planned = []
    for index in range(count):
        master = _planned(given, settings, index)
        planned += [master, *(_slave_of(master, settings, index, number) for number in range(1, replicas))]
    return planned


def unserved_stores(settings: BrokerSettings, count: int) -> list[Path]:
    """Where stores of further brokers would be if there were more than `count`."""
    endings = string.ascii_lowercase[max(count, 1) :]
    return [_with_ending(settings.store_path_root_dir, f"-{letter}") for letter in endings]


def _planned(given: Mapping[str, str], settings: BrokerSettings, index: int) -> PlannedBroker:
    ending = f"-{string.ascii_lowercase[index]}" if index else ""
    name = settings.broker_name
    if index:
        name = name.removesuffix(_FIRST) + ending
    store = _with_ending(settings.store_path_root_dir, ending)
    own = {"brokerName": name, "storePathRootDir": str(store)}
    for row in table(BrokerSettings).values():
        value: Any = getattr(settings, row.attribute)
        if row.name in ("storePathCommitLog", "authConfigPath") and value is not None:
            own[row.name] = str(_with_ending(value, ending))
        elif row.name.endswith("Port") and value:
            own[row.name] = str(_port(row.name, value + PORT_STEP * index, name))
    return PlannedBroker(name, store, {**given, **own})


def _slave_of(master: PlannedBroker, settings: BrokerSettings, index: int, number: int) -> PlannedBroker:
    """The settings of a slave: its master's, with other directories, ports and id."""
    ending = f"-slave{number}"
    own = {"brokerRole": "SLAVE", "brokerId": str(number), "slaveReadEnable": "true"}
    for setting in ("storePathRootDir", "storePathCommitLog", "authConfigPath"):
        if master.texts.get(setting):
            own[setting] = str(_with_ending(Path(master.texts[setting]), ending))
    for row in table(BrokerSettings).values():
        value: Any = getattr(settings, row.attribute)
        if row.name.endswith("Port") and value:
            port = value + PORT_STEP * index + SLAVE_STEP * number
            own[row.name] = str(_port(row.name, port, f"{master.name}, slave {number},"))
    return PlannedBroker(
        f"{master.name}{SLAVE_MARK}{number}", Path(own["storePathRootDir"]), {**master.texts, **own}
    )


def _with_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _port(setting: str, port: int, name: str) -> int:
    if port > PORT_MAX:
        raise SettingsError(
            f"{name} would have {setting}={port}, and ports end at {PORT_MAX}; "
            f"start with a lower one, or with 0 for any free ones",
            setting,
            port,
            limit=PORT_MAX,
        )
    return port
