"""Every case at Apache's servers and at ours, one side after the other."""

from __future__ import annotations

from contextlib import ExitStack

from tests.interop.apache import PATIENT, ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.mqadmin.commands import CASES
from tests.interop.mqadmin.compare import Shown, surprises
from tests.interop.mqadmin.record import Seen, seen
from tests.interop.mqadmin.rig import filled, guarded_apache, guarded_ours, run

from sparrowmq.testing import LocalCluster


def run_both() -> tuple[list[Seen], dict[str, list[str]]]:
    """What was seen of each case, and what was not as expected, by case."""
    with JavaDriver() as driver:
        apache, ours = _apache(driver), _ours(driver)
    rows, surprising = [], {}
    for case, there, here in zip(CASES, apache, ours, strict=True):
        rows.append(seen(case, here, there))
        if found := surprises(case, here, there):
            surprising[case.id] = found
    return rows, surprising


def _apache(driver: JavaDriver) -> list[Shown]:
    settings = {**PATIENT, "traceTopicEnable": "true", "recallMessageEnable": "true"}
    with ExitStack() as stack:
        place = stack.enter_context(filled(stack.enter_context(ApacheCluster(settings=settings)), driver))
        return [shown for _, shown in run(CASES, place, stack.enter_context(guarded_apache()))]


def _ours(driver: JavaDriver) -> list[Shown]:
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(trace_topic_enable=True))
        place = stack.enter_context(filled(cluster, driver))
        return [shown for _, shown in run(CASES, place, stack.enter_context(guarded_ours()))]
