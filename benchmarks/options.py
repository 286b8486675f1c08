"""How long and how often to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Rounds, seconds and message counts of a run. `java_warm` is how long a new JVM warms up, in seconds."""

    peers: list[str]
    rounds: int
    warm: float
    seconds: float
    java_warm: float
    backlog: int
    spark_rows: int
    memory_messages: int
    recovery_messages: int
    connections: int
    topics: int
    cold_bytes: int
    only: str = ""
    """Of the cases of `send`, `spark` and `pipelines`, those whose title holds this text."""


def full(peers: list[str]) -> Options:
    """What published figures come from."""
    return Options(peers, 5, 2.0, 6.0, 10.0, 500_000, 1_000_000, 1_000_000, 2_900_000, 5_000, 5_000, 10**10)


def quick(peers: list[str]) -> Options:
    """A first impression in a minute or two; too short for judgement."""
    return Options(peers, 1, 0.5, 1.5, 3.0, 50_000, 100_000, 100_000, 100_000, 500, 500, 2 * 10**8)
