"""The table of behaviours: every fact has tests, or stands on the list of those that have none yet."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support import refuse_skip

ROOT = Path(__file__).resolve().parent.parent.parent


def load() -> ModuleType:
    """The script, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        "generate_behaviours", ROOT / "scripts" / "generate_behaviours.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load()

DATA = """
pending = [
    "A-02",
]
[rows]
MUST-01 = ["One", ["A-01", "A-02"]]
[facts]
A-01 = ["first", "core.names:check_topic"]
A-02 = ["second", ""]
[[differences]]
said = "this"
done = "that"
facts = ["A-01"]
"""


def proofs(*tests: str) -> list[object]:
    return list(script.proofs_in("import pytest\n" + "\n".join(tests), "tests/test_x.py"))


def marked(name: str, *facts: str, extra: str = "") -> str:
    listed = ", ".join(f'"{fact}"' for fact in facts)
    return f"{extra}\n@pytest.mark.proves({listed})\ndef test_{name}() -> None:\n    assert True\n"


def found(data: str, *tests: str) -> list[str]:
    return list(script.problems(script.read_data(data), proofs(*tests)))


def test_every_fact_has_a_test_and_a_function() -> None:
    data, marks = script.read_data(script.DATA.read_text()), script.read_proofs()
    assert script.problems(data, marks) == []


def test_all_rows_are_there() -> None:
    data = script.read_data(script.DATA.read_text())
    assert list(data.rows) == [f"MUST-{number:02d}" for number in range(1, 70)]
    used = {fact for _, facts in data.rows.values() for fact in facts}
    assert set(data.facts) == used, "a fact that no row has, or the other way round"


def test_a_table_in_order_has_no_problems() -> None:
    assert found(DATA, marked("a", "client:A-01", "broker:9.3")) == []


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ([], "A-01 has no test"),
        (
            [marked("a", "client:A-01", "client:A-02")],
            "A-02 is pending but tests/test_x.py::test_a proves it",
        ),
        (
            [marked("a", "client:A-01", "A-1", "A-3", "A-4", "A-5", "A-6")],
            "test_a proves 6 facts; 5 is the most",
        ),
        (
            [marked("a", "client:A-01", extra="@pytest.mark.skip")],
            "test_a proves client:A-01 but may be skipped",
        ),
        ([marked("a", "client:A-01", extra="@pytest.mark.xfail(reason='x')")], "may be skipped"),
        ([marked("a", "client:A-01", extra="@pytest.mark.skipif(True, reason='x')")], "may be skipped"),
        ([marked("a", "client:A-01").replace("assert True", "pytest.skip('no')")], "may be skipped"),
        (["pytestmark = [pytest.mark.skip]", marked("a", "client:A-01")], "may be skipped"),
        (['numpy = pytest.importorskip("numpy")', marked("a", "client:A-01")], "may be skipped"),
        (
            ["if True:\n    pytest.skip(allow_module_level=True)", marked("a", "client:A-01")],
            "may be skipped",
        ),
    ],
)
def test_what_is_missing_skipped_or_too_much_is_found(tests: list[str], says: str) -> None:
    assert any(says in problem for problem in found(DATA, *tests)), found(DATA, *tests)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("names:check_topic", "names:no_such", "A-01 names core.names:no_such, which does not exist"),
        ("core.names:", "core.nothing:", "which does not exist"),
        ("core.names:check_topic", "core.names", "which does not exist"),
        ("core.names:check_topic", "", "A-01 is proven but names no function"),
        ('"A-02",\n]', '"A-02",\n    "Z-99",\n]', "Z-99 is pending but is no fact"),
        ('["A-01", "A-02"]]', '["A-01", "A-02", "A-09"]]', "MUST-01 names A-09, which is no fact"),
        ('["One", ["A-01", "A-02"]]', '["One", []]', "MUST-01 has no test"),
        ('facts = ["A-01"]', 'facts = ["A-09"]', "a difference names A-09"),
    ],
)
def test_data_that_points_nowhere_is_found(old: str, new: str, says: str) -> None:
    assert old in DATA
    problems = found(DATA.replace(old, new), marked("a", "client:A-01"))
    assert any(says in problem for problem in problems), problems


def test_marks_are_read_wherever_pytest_takes_them() -> None:
    source = """
import pytest
pytestmark = pytest.mark.proves("client:A-01")

@pytest.mark.proves("client:A-02")
class TestThings:
    def test_one(self): pass

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.proves("client:A-03"))])
def test_two(x): pass

def helper(): pass
"""
    assert [(p.test, p.facts) for p in script.proofs_in(source, "tests/t.py")] == [
        ("tests/t.py::TestThings::test_one", ("client:A-01", "client:A-02")),
        ("tests/t.py::test_two", ("client:A-01", "client:A-03")),
    ]
    with pytest.raises(AssertionError, match="written out"):
        list(script.proofs_in("@pytest.mark.proves(FACT)\ndef test_x(): pass", "tests/t.py"))


def test_a_step_counts_for_its_section() -> None:
    table = script.tests_by_fact(proofs(marked("a", "client:D.2-7"), marked("b", "client:C-01")))
    assert set(table) == {"D.2-7", "D.2", "C-01"}


def test_names_inside_classes_and_constants_are_found() -> None:
    assert script.has_name("client.consumer.pull_loop:PullLoop.run")
    assert script.has_name("client.base.settings:RETRY_CODES")
    assert script.has_name("core.allocation:Averagely") is False, "only where it is defined"
    assert not script.has_name("client.push.puller:Puller.no_such")


def test_the_page_names_tests_and_what_has_none() -> None:
    data, marks = script.read_data(DATA), proofs(marked("a", "client:A-01"), marked("b", "client:A-01"))
    page = script.render(data, marks)
    assert "| A-01 | first | `core.names:check_topic` | `test_x.py::test_a`<br>`test_x.py::test_b` |" in page
    assert "| A-02 | second |  | not yet |" in page
    assert "| this | that | A-01 |" in page


def test_the_pending_list_is_rewritten_in_place() -> None:
    text = script.with_pending(DATA, [])
    assert script.read_data(text).pending == []
    assert script.with_pending(text, ["A-02"]) == DATA


@pytest.mark.parametrize(
    ("outcome", "facts", "becomes"),
    [("skipped", ["A-01"], "failed"), ("skipped", [], "skipped"), ("passed", ["A-01"], "passed")],
)
def test_a_proof_that_is_skipped_while_it_runs_fails(outcome: Any, facts: list[str], becomes: str) -> None:
    place = ("tests/test_x.py", 1, "test_a")
    report = pytest.TestReport("test_x.py::test_a", place, {}, outcome, "no java", "setup")
    refuse_skip(report, facts)
    assert report.outcome == becomes
    if becomes == "failed":
        assert report.longrepr == "test_x.py::test_a proves A-01 and may not be skipped: no java"
