"""SparrowMQ never uses the process's shared random generator."""

from __future__ import annotations

import ast
import os
import random
from pathlib import Path

import pytest

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.randomness import RANDOM

SOURCE = Path(__file__).parent.parent.parent / "src" / "sparrowmq"
OWN = {"Random", "SystemRandom"}
"""The classes of the module `random` for a generator of one's own."""


def shared_uses(source: str) -> list[tuple[int, str]]:
    """(line, name) of each use of `random` in a module, except the classes of generators."""
    tree = ast.parse(source)
    found = []
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "random"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            found += [(node.lineno, alias.name) for alias in node.names if alias.name not in OWN]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            found += [(node.lineno, node.attr)] if node.attr not in OWN else []
    return found


def test_no_module_uses_the_shared_random_generator() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: random.{name} is the whole process' generator; use an `rng` "
        "that is given, or sparrowmq.core.randomness.RANDOM"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name in shared_uses(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import random\nrandom.choice([1])", ["choice"]),
        ("import random as r\nr.seed(1)\nr.Random(1).choice([1])", ["seed"]),
        ("from random import Random, shuffle", ["shuffle"]),
        ("import random\ndef f(rng: random.Random) -> None:\n    rng.choice([1])", []),
        ("from numpy import random\nrandom.choice([1])", []),
    ],
)
def test_uses_of_the_shared_generator_are_found(source: str, names: list[str]) -> None:
    assert [name for _, name in shared_uses(source)] == names


def test_delays_do_not_change_the_shared_random_generator() -> None:
    before = random.getstate()
    pauses = Backoff(first=1.0, most=2.0).delays()
    assert [next(pauses) for _ in range(3)]
    assert RANDOM.randrange(10) in range(10)
    assert random.getstate() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_gets_other_numbers_than_its_parent() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"%d" % RANDOM.getrandbits(64))
        os._exit(0)
    os.close(writing)
    try:
        assert int(os.read(reading, 100)) != RANDOM.getrandbits(64)
    finally:
        os.close(reading)
        os.waitpid(child, 0)
