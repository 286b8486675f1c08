"""Apache's `mqadmin` at Apache's servers and at ours: a sample of its commands here, all in the long tier."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.conftest import LONG
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.mqadmin.both import run_both
from tests.interop.mqadmin.commands import CASES, COMMANDS, Facts
from tests.interop.mqadmin.compare import surprises
from tests.interop.mqadmin.record import read
from tests.interop.mqadmin.rig import Tools, filled, run

from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
PLACES = {"queryMsgById", "queryCq"}
"""Commands that show positions in the log, which here depend on the tests that ran before."""
SAMPLE = [
    replace(case, facts=Facts.NUMBERS) if case.command in PLACES else case
    for case in CASES
    if case.sample and not case.guarded
]


def test_every_command_is_in_the_table() -> None:
    with Tools() as tools:
        assert sorted(tools.commands()) == sorted(COMMANDS)
    assert {case.command for case in CASES} == set(COMMANDS)


def test_a_sample_is_as_the_page_says(apache: ApacheCluster, ours: LocalCluster, driver: JavaDriver) -> None:
    with filled(apache, driver) as place:
        there = dict(run(SAMPLE, place, place))
    with filled(ours, driver) as place:
        here = dict(run(SAMPLE, place, place))
    found = {case.id: surprises(case, here[case], there[case]) for case in SAMPLE}
    assert {case: lines for case, lines in found.items() if lines} == {}


@pytest.mark.skipif(not LONG, reason="every command, in the long tier")
def test_every_command_is_as_the_page_says() -> None:
    rows, surprising = run_both()
    assert surprising == {}
    assert [(row.case, row.same) for row in rows] == [(row.case, row.same) for row in read()]
