"""`sparrow torture`: a cluster of processes under faults, and whether it kept its promises to clients."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from sparrowmq.cli.base.common import UsageError, complain, run, say

if TYPE_CHECKING:
    from sparrowmq.torture.rounds import RoundResult

DATA: Final = Path("sparrow-torture")
SEED_MAX: Final = 2**31 - 1


Rounds = Annotated[int, typer.Option("--rounds", min=1, max=1_000_000, help="How many rounds.")]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        max=SEED_MAX,
        help="Seed of the first round; each further one has the next number. Default: random.",
    ),
]
Replicas = Annotated[int, typer.Option("--replicas", min=2, max=4, help="Copies of each message.")]
Seconds = Annotated[
    float, typer.Option("--seconds", min=1, max=3600, help="Seconds within which faults of a round begin.")
]
Network = Annotated[
    bool,
    typer.Option(
        "--network/--no-network", help="Whether to cut, delay and break connections too. Linux only."
    ),
]
Data = Annotated[Path, typer.Option("--data", help="Directory for data, logs and histories of rounds.")]
Keep = Annotated[
    bool,
    typer.Option("--keep/--no-keep", help="Whether to keep the directory of a round that broke a promise."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting of the brokers; repeatable."),
]
Output = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Append the result of each round to a file, as a line."),
]


def torture(
    rounds: Rounds = 1,
    seed: Seed = None,
    replicas: Replicas = 2,
    seconds: Seconds = 8.0,
    network: Network = True,
    data: Data = DATA,
    keep: Keep = True,
    assignments: Assignments = None,
    output: Output = None,
) -> None:
    """Kill, freeze and cut off parts of a real cluster of this machine, and check what its clients saw.

    Each round starts a name server, a coordinator and brokers with a second copy as processes, with clients
    that send and read. Afterwards every acknowledged message must be there, once, in its place and order, and
    consumers must have missed none. Exit status 1 if a promise was broken; the same seed does the same faults
    again.
    """
    from sparrowmq.runtime.coordinator import need_packages
    from sparrowmq.torture.network import is_possible
    from sparrowmq.torture.rounds import RoundSettings, run_rounds

    need_packages()
    if network and not is_possible():
        say("no faults of the network: they need Linux, with the address 127.0.0.2", err=True)
        network = False
    start = secrets.randbelow(SEED_MAX - rounds) if seed is None else seed
    settings = RoundSettings(start, replicas, seconds, network, texts=_texts(assignments or ()))
    file = _opened(output) if output is not None else None
    results: list[RoundResult] = []

    def done(result: RoundResult) -> None:
        results.append(result)
        if file is not None:
            file.write(json.dumps(result.as_json()) + "\n")
            file.flush()
        _tell(result, keep=keep)

    try:
        broken = run(run_rounds(settings, rounds, data, _progress, done, keep=keep))
    finally:
        if file is not None:
            file.close()
        _remove_if_empty(data)
    say(_summary(results))
    if broken:
        raise typer.Exit(1)


def _texts(assignments: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in assignments]
    for name, sign, _ in pairs:
        if not (name and sign):
            raise UsageError(f"--set {name}{sign}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _opened(path: Path) -> TextIO:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _remove_if_empty(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()


def _progress(text: str) -> None:
    say(text, flush=True)


def _tell(result: RoundResult, *, keep: bool) -> None:
    figures = result.figures
    counts = (
        f"{figures['acknowledged']:,} acknowledged, {figures['unknown']:,} unknown, "
        f"{figures['failed']:,} failed, "
        f"{figures['received']:,} received, {figures['stored']:,} stored"
    )
    say(f"{result.seconds:6.1f} s  {counts}: {_word(result)}", flush=True)
    for one in result.broken:
        complain(str(one))
    for promise, count in result.broken_count.items():
        if count > 1:
            complain(f"{promise}: broken {count:,} times")
    if result.broken:
        complain(f"seed {result.seed} broke a promise; again: sparrow torture --seed {result.seed}")
        if keep:
            complain(f"its data, logs and history are in {result.directory}")


def _word(result: RoundResult) -> str:
    return "a promise was broken" if result.broken else "all promises kept"


def _summary(results: list[RoundResult]) -> str:
    total: dict[str, Any] = {
        name: sum(one.figures[name] for one in results) for name in ("acknowledged", "unknown", "received")
    }
    faults = sum(len(one.faults) for one in results)
    broken = sum(bool(one.broken) for one in results)
    return (
        f"{len(results):,} rounds, {faults:,} faults, {total['acknowledged']:,} messages acknowledged, "
        f"{total['unknown']:,} unknown, {total['received']:,} received; {broken:,} rounds broke a promise"
    )
