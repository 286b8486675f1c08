"""The judge of the mutation run: what is explained, what fails, and that the page says the same."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.mutation import HEADING, PAGE, Explanation, Judgement, Survivor, explanations, page, report

SAME = Survivor("m.x_f__mutmut_1", "m.f", "survived", "return a < b", "return a <= b")
CAST = Survivor("m.xǁCǁg__mutmut_2", "m.C.g", "survived", 'x = cast("int", y)', "x = cast(None, y)")
UNREACHED = Survivor("m.x_h__mutmut_1", "m.h", "no tests", "return 1", "return 2")
KNOWN = [
    Explanation("m.f", "they are never equal", was="return a < b", becomes="return a <= b"),
    Explanation("*", "cast does nothing", within=r"cast\([^,]*, "),
]


def judged(*survivors: Survivor, killed: int = 8) -> Judgement:
    counts = Counter(survivor.status for survivor in survivors)
    return Judgement({"m.py"}, counts + Counter(killed=killed), list(survivors))


@pytest.mark.parametrize(
    ("survivor", "explained"),
    [(SAME, [True, False]), (CAST, [False, True]), (UNREACHED, [False, False])],
)
def test_an_explanation_means_one_change_or_what_lies_within(
    survivor: Survivor, explained: list[bool]
) -> None:
    assert [each.explains(survivor) for each in KNOWN] == explained
    elsewhere = Explanation("other.*", "", was=survivor.was, becomes=survivor.becomes)
    assert not elsewhere.explains(survivor)


def test_explained_survivors_are_not_a_failure() -> None:
    assert list(report(judged(SAME, CAST), KNOWN, whole=True)) == [
        "8 killed, 2 survived",
        "10 changes in 1 modules: 8 noticed (80.0%), 2 explained, 0 neither.",
    ]


def test_what_is_not_explained_and_what_explains_nothing_fail() -> None:
    judgement = judged(SAME, UNREACHED)
    failures = [line for line in report(judgement, KNOWN, whole=True) if line.startswith("FAILED")]
    assert len(failures) == 2
    assert "m.x_h__mutmut_1 (no tests)" in failures[0]
    assert "cast does nothing" in failures[1]
    partly = [line for line in report(judgement, KNOWN, whole=False) if line.startswith("FAILED")]
    assert partly == failures[:1]


def test_nothing_at_all_is_a_failure() -> None:
    assert list(report(Judgement(), [], whole=True)) == ["FAILED: nothing was changed"]


def test_the_page_gets_figures_and_explanations_at_its_end() -> None:
    text = page(f"# Q\n\nwords\n\n{HEADING}\n\nold\n", "figures", KNOWN)
    assert text == page(text, "figures", KNOWN)
    assert text.startswith(f"# Q\n\nwords\n\n{HEADING}\n\nfigures\n")
    assert "| `m.f` | `return a < b` → `return a <= b` | they are never equal |\n" in text


def test_the_page_explains_what_the_judge_takes() -> None:
    known, text = explanations(), PAGE.read_text()
    summary = text.partition(HEADING)[2].split("\n\n")[1]
    assert summary.endswith("0 neither.")
    assert page(text, summary, known) == text
