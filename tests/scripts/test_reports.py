"""JUnit reports: what they count, names of tests, and the merged report."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from scripts.reports import Count, Report, junit_name, merge_reports, read_report, slowest
from scripts.second_look import Flaky

TESTS = """
import pytest

@pytest.fixture
def torn():
    yield
    raise ValueError("torn")

def test_a(): pass
@pytest.mark.parametrize("x", ["a::b[c]"])
def test_b(x): assert x == "other", "two\\nlines"
@pytest.mark.skip
def test_c(): pass
def test_d(torn): pass
def test_e(torn): assert False

class TestIt:
    def test_f(self): assert 0
"""
FAILED = [
    "t/test_it.py::test_b[a::b[c]]",
    *(f"t/test_it.py::{name}" for name in ("test_d", "test_e", "TestIt::test_f")),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that pytest makes of these tests."""
    root = tmp_path_factory.mktemp("reports")
    (root / "t").mkdir()
    (root / "t" / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "t", "--junit-xml=it.xml", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=root, capture_output=True, check=False)
    return root / "it.xml"


def test_each_test_counts_once(file: Path) -> None:
    found = read_report(file)
    assert found.count == Count(passed=1, failed=4, skipped=1)
    assert set(found.messages) == {junit_name(test) for test in FAILED}
    assert found.messages[junit_name(FAILED[0])] == "AssertionError: two"
    assert len(found.seconds) == 6


def test_no_report_says_nothing(tmp_path: Path) -> None:
    assert read_report(tmp_path / "none.xml") == Report()


def test_flaky_tests_are_no_failures_of_the_merged_report(file: Path, tmp_path: Path) -> None:
    flaky = [Flaky(FAILED[0], "busy"), Flaky(FAILED[2], "busy")]
    merge_reports([file, tmp_path / "none.xml", file], flaky, tmp_path / "deep" / "all.xml")
    root = ElementTree.parse(tmp_path / "deep" / "all.xml").getroot()
    assert (root.get("flaky"), len(root)) == ("2", 2)
    for suite in root:
        assert (suite.get("flaky"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
        assert len([*suite.iter("flakyFailure")]) == 3
    assert read_report(tmp_path / "deep" / "all.xml").count.failed == 2


def test_the_slowest_come_first() -> None:
    assert slowest({"a": 1.0, "b": 12.25, "c": 3.0}, 2) == ["   12.2 s  b", "    3.0 s  c"]


def test_counts_are_shown() -> None:
    assert str(Count(9, 0)) == "9 passed, 0 failed"
    assert str(Count(9, 1, 2)) == "9 passed, 1 failed, 2 skipped"
