"""Archive, history, replay and audit with everything they keep on a file system that Python does not see."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.stored_files import mounted
from tests.spark.support import Topics, numbered
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import (
    ArchiveSettings,
    AuditSettings,
    ReplaySettings,
    archive,
    audit,
    plan_replay,
    replay,
)
from sparrowmq.spark.pipelines.replay.directory import ReplayDirectory


def test_replay_and_audit_of_an_archive(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = mounted(spark, tmp_path)
    topics.cluster.create_topic(f"{topic}_out", queues=2)
    topics.send(topic, 32)
    namesrv = topics.cluster.namesrv
    archive(spark, ArchiveSettings(directory=f"{lake}/archive", topics=(topic,), name_server=namesrv))

    settings = ReplaySettings(
        home=f"{lake}/replay",
        to=f"{topic}_out",
        archive=f"{lake}/archive/",
        name_server=namesrv,
        batch_rows=10,
    )
    assert "32 messages wait" in str(plan_replay(settings))
    real, notes = ReplayDirectory.save, []

    def dies(home: ReplayDirectory, place: Any) -> None:
        notes.append(place)
        if len(notes) == 4:
            raise SettingsError("died after a part was sent")
        real(home, place)

    monkeypatch.setattr(ReplayDirectory, "save", dies)
    with pytest.raises(SettingsError, check=about(args=("died after a part was sent",))):
        replay(spark, settings)
    monkeypatch.setattr(ReplayDirectory, "save", real)
    replay(spark, settings)
    assert replay(spark, settings).rows == 0
    assert Counter(one.body.decode() for one in topics.read(f"{topic}_out")) == Counter(numbered(0, 32))

    (tmp_path / "sent.csv").write_text(
        f"topic,id,time\n{topic},k1,{int(time.time() * 1000)}\n{topic},gone,1\n"
    )
    judged = AuditSettings(
        directory=f"{lake}/audit",
        topics=(topic,),
        name_server=namesrv,
        ledger=f"{lake}/sent.csv",
        match="keys",
        archive=f"{lake}/archive",
        live=False,
        since=0,
    )
    verdict = audit(spark, judged, now=lambda: time.time() + 120)
    assert (verdict.sent, verdict.stored) == (2, 32)
    told = json.loads((tmp_path / "audit" / "verdict.json").read_text())
    assert told["counts"]["stored"] == 32
    lost = spark.read.parquet(f"{lake}/audit/findings").where("kind = 'lost'").select("id").collect()
    assert [row["id"] for row in lost] == ["gone"]
