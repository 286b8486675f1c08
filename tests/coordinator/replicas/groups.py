"""A group of three brokers for tests of decisions: `a` is master, `a` and `b` are in sync, `c` follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparrowmq.coordinator.replicas.decisions import (
    ElectionTimes,
    Heard,
    ReplicaGroup,
    ReplicaMember,
    View,
    Wish,
)

TIMES = ElectionTimes()
NOW = 100.0
LONG_AGO = NOW - 60


def member(name: str, number: int) -> ReplicaMember:
    return ReplicaMember(name, f"store-{name}", f"{name}-ha", number)


GROUP = ReplicaGroup(
    "g",
    "cluster",
    epoch=4,
    number=7,
    master="a",
    run="run-a",
    store="store-a",
    in_sync=("a", "b"),
    members={name: member(name, number) for number, name in enumerate("abc", 1)},
)


def heard(name: str, **given: Any) -> Heard:
    is_master = name == "a"
    usual = Heard(
        address=name,
        at=NOW,
        store=f"store-{name}",
        run=f"run-{name}",
        stamp=5000,
        role="MASTER" if is_master else "SLAVE",
        state="SERVING" if is_master else "FOLLOWING",
        epoch=4,
        number=7,
        log_epoch=4,
        end=1000,
        confirmed=1000,
        cluster="cluster",
        ha_address=f"{name}-ha",
        master_address="a",
        wanted=("a", "b") if is_master else None,
        slaves={"b": "store-b", "c": "store-c"} if is_master else {},
    )
    return replace(usual, **given)


def view(*answers: Heard, over: float = NOW + 3, wish: Wish | None = None, now: float = NOW) -> View:
    return View(now, {one.address: one for one in answers}, over, wish)
