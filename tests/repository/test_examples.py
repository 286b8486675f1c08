"""Every program under examples/ runs against a cluster of its own and does what it says.

Those with Spark are run by `tests/spark/test_examples.py`, in one session.
"""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
from tests.pages import Page

from sparrowmq.testing import LocalCluster

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
ALL = sorted(EXAMPLES.glob("*.py"))
PROGRAMS = [path for path in ALL if not path.stem.startswith("spark_")]
SAYS = {
    "batches": "2000 stored",
    "broadcast_cache_refresh": "3 servers know 3 prices",
    "dead_letters": "booked after all: [b'20 GBP']",
    "deduplicate": "balance: 50",
    "delay": "at a moment: ",
    "high_throughput": "20000 answered, 20000 stored",
    "hooks": "{'stored': 1}",
    "nightly_batch": "first night: {'bread': 1, 'tea': 2}\nsecond night: {'milk': 1}",
    "ordered": "20 orders, each through 4 steps in order",
    "push_gateway": "2 of 3 pushes were confirmed",
    "request_reply": "4 1 = 5",
    "shop": "1000 orders are sent",
    "stored_once": "answers were lost; 2000 sent, 2000 stored",
    "trace": "Pub example-senders\nSubBefore example-receivers\nSubAfter example-receivers",
    "transaction": "to be shipped: book",
}
"""What each program prints, beside other things."""


@pytest.mark.proves("client:D-110")
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_the_program_runs(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(program))["main"]
    with LocalCluster() as cluster:
        main(cluster.namesrv)
    assert SAYS[program.stem] in capsys.readouterr().out


def test_every_program_is_in_the_index() -> None:
    rows = Page(EXAMPLES / "README.md").table("| program |")
    assert sorted(name for name, _ in rows) == [f"[`{path.name}`]({path.name})" for path in ALL]
    assert list(SAYS) == [path.stem for path in PROGRAMS]


@pytest.mark.parametrize("program", ALL, ids=[program.stem for program in ALL])
def test_a_program_says_how_it_is_run(program: Path) -> None:
    words = ast.get_docstring(ast.parse(program.read_text())) or ""
    assert f"python examples/{program.name} 127.0.0.1:9876" in words
