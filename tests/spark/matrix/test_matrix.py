"""The fault matrix: whatever is killed at whatever moment, and whatever is another afterwards.

A sample each time, all cells in the long tier, there with another seed each time.
`SPARROW_MATRIX_SEED=7 pytest -k stream-driver-fewer` does a round again, as far as chance allows.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.conftest import LONG
from tests.pages import ROOT
from tests.spark.matrix.cells import CELLS, SAMPLE, Cell, Change, Fault, Promise, Scenario, cell_of
from tests.spark.matrix.drivers import Drivers
from tests.spark.matrix.record import RECORD, Result, read, unrecorded
from tests.spark.matrix.rounds import run_round

GIVEN = os.environ.get("SPARROW_MATRIX_SEED")
SEED = int(GIVEN) if GIVEN else random.SystemRandom().randrange(1_000_000) if LONG else 1


@pytest.fixture(scope="module")
def drivers(quick_children: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(tmp_path_factory.mktemp("drivers")) as made:
        yield made


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.stalls(seconds=60, why="brokers are frozen on purpose")
@pytest.mark.parametrize("cell", CELLS if LONG or GIVEN else SAMPLE, ids=lambda cell: cell.id)
def test_a_cell_keeps_its_promise(
    cell: Cell, drivers: Drivers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    result = run_round(cell, SEED, drivers, tmp_path_factory.mktemp(cell.id))
    assert not result.fault


def test_the_sample_has_every_scenario_fault_and_change() -> None:
    assert {cell.scenario for cell in SAMPLE} == set(Scenario)
    assert {cell.fault for cell in SAMPLE} == set(Fault)
    assert {cell.change for cell in SAMPLE} == set(Change)
    assert {cell_of(cell.id) for cell in CELLS} == set(CELLS) and len(CELLS) == 180


def result(cell: str, *, missing: int = 0, doubled: int = 0, unknown: int = 0) -> Result:
    return Result(cell, 1, 500, 1000, 1000, missing, doubled, unknown, elsewhere=9, seconds=1.0)


def test_a_broken_promise_is_told() -> None:
    assert not result("stream-driver-fewer").fault
    for broken in ({"missing": 1}, {"doubled": 1}, {"unknown": 1}):
        assert "stream-driver-fewer, seed 1, promised once" in result("stream-driver-fewer", **broken).fault
    assert cell_of("job-driver-fewer").promise is Promise.AT_LEAST_ONCE
    assert not result("job-driver-fewer", doubled=400).fault
    assert result("job-driver-fewer", missing=1).fault


def test_the_cells_that_lack_a_record_are_known() -> None:
    assert unrecorded([]) == list(CELLS)
    results = read(RECORD)
    left = {cell.id for cell in unrecorded(results)}
    assert left | {one.cell for one in results} == {cell.id for cell in CELLS}
    assert left.isdisjoint(one.cell for one in results)


def test_entries_say_what_is_promised() -> None:
    entry = generator().entry
    weak, strong = cell_of("job-driver-fewer"), cell_of("job-driver-settings")
    assert entry(weak, [result(weak.id, doubled=400)]) == "1 · 0 · 400 (9) · 1 s (at least once ¹)"
    assert (entry(weak, []), entry(strong, [])) == ("– (at least once ¹)", "–")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_matrix", ROOT / "scripts/generate_matrix.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_page_is_made_of_the_record() -> None:
    results, made = read(RECORD), generator()
    assert results and not [one.fault for one in results if one.fault]
    text = made.PAGE.read_text()
    assert "<!-- table: matrix -->" in text
    assert made.page(text, made.markdown(results)) == text, "run scripts/generate_matrix.py"
