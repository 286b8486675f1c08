"""An audit told by traces of Java's clients: at our servers in a name space, at Apache's without one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.spark import AuditedGroup, AuditSettings, audit
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.spark]
LATE_SECONDS = 60.0


def later() -> float:
    """Two minutes ahead: what is stored now is long ago."""
    return time.time() + 2 * LATE_SECONDS


@pytest.mark.proves("client:B-111", "client:B-123")
@pytest.mark.parametrize(("side", "space"), [("ours", "ns"), ("apache", "")])
def test_what_java_sent_and_consumed_is_told_and_what_it_missed(
    spark: SparkSession,
    apache: ApacheCluster,
    driver: JavaDriver,
    name: str,
    side: str,
    space: str,
    tmp_path: Path,
) -> None:
    with LocalCluster(trace_topic_enable=True) as ours:
        where = {"ours": ours.namesrv, "apache": apache.namesrv}[side]
        call = {"namesrv": where, "topic": name, **({"namespace": space} if space else {})}
        stored, group = (f"{space}%{name}", f"{space}%{name}_g") if space else (name, f"{name}_g")
        began = int(time.time() * 1000) - 1000
        with mq.Admin(where) as admin:
            admin.topics.create(stored, queues=1)
            first = driver.call("Traces.send", group=f"{name}_p1", keys="k1", **call)
            assert driver.call("Traces.poll", group=f"{name}_g", **call) == [first]
            second = driver.call("Traces.send", group=f"{name}_p2", keys="k2", **call)
            until_sync(lambda: len(admin.messages.trace(first)) >= 3 and admin.messages.trace(second))
        settings = AuditSettings(
            directory=tmp_path / "audit",
            topics=(stored,),
            groups=(AuditedGroup(group),),
            name_server=where,
            since=began,
            late_seconds=LATE_SECONDS,
            margin_seconds=0,
        )
        verdict = audit(spark, settings, None, later)
    assert (verdict.sent, verdict.stored, verdict.consumed) == (2, 2, {group: 1}), verdict.lines()
    assert [(one["kind"], one["id"]) for one in verdict.shown] == [("missed", second)]
    assert verdict.status == 1
    assert verdict.sources[f"consumed by {group}"] == "traces in RMQ_SYS_TRACE_TOPIC"
