"""The Spark data source `rocketmq`, batches and streams in Arrow batches; and the pipelines on it.

    options = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}
    orders = spark.readStream.format("rocketmq").options(**options).load()

Spark finds it by itself where the package is installed (module `pyspark_rocketmq`); `source.register` makes
it known under its second name `sparrowmq` as well. Needs pyspark, pyarrow and numpy: `pip install
'sparrowmq[spark]'`. The names of `__all__` are the pipelines', imported when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.archive import (
        ArchiveSettings,
        archive,
        backfill,
        dry_run_archive,
        dry_run_backfill,
        plan_archive,
        plan_backfill,
        read_archive,
    )
    from sparrowmq.spark.pipelines.audit import audit, dry_run_audit, plan_audit
    from sparrowmq.spark.pipelines.audit_settings import AuditedGroup, AuditSettings
    from sparrowmq.spark.pipelines.history import HistorySettings, dry_run_history, history, plan_history
    from sparrowmq.spark.pipelines.mirror import MirrorSettings, dry_run_mirror, mirror, plan_mirror
    from sparrowmq.spark.pipelines.progress import take_snapshot
    from sparrowmq.spark.pipelines.replay import dry_run_replay, plan_replay, replay
    from sparrowmq.spark.pipelines.replay_settings import ReplaySettings
    from sparrowmq.spark.pipelines.report import dry_run_report, plan_report, report
    from sparrowmq.spark.pipelines.report_settings import ReportSettings
    from sparrowmq.spark.pipelines.sql import SqlSettings, dry_run_sql, plan_sql, sql
    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.store import StoreSettings, dry_run_store, plan_store, store
    from sparrowmq.spark.pipelines.verdict import Verdict
    from sparrowmq.spark.pipelines.watch import Progress, Watch

__all__ = [
    "ArchiveSettings",
    "AuditSettings",
    "AuditedGroup",
    "HistorySettings",
    "MirrorSettings",
    "Plan",
    "Progress",
    "ReplaySettings",
    "ReportSettings",
    "SqlSettings",
    "StoreSettings",
    "Verdict",
    "Watch",
    "archive",
    "audit",
    "backfill",
    "dry_run_archive",
    "dry_run_audit",
    "dry_run_backfill",
    "dry_run_history",
    "dry_run_mirror",
    "dry_run_replay",
    "dry_run_report",
    "dry_run_sql",
    "dry_run_store",
    "history",
    "mirror",
    "plan_archive",
    "plan_audit",
    "plan_backfill",
    "plan_history",
    "plan_mirror",
    "plan_replay",
    "plan_report",
    "plan_sql",
    "plan_store",
    "read_archive",
    "replay",
    "report",
    "sql",
    "store",
    "take_snapshot",
]

_HOMES: Final = {
    "archive": (
        "ArchiveSettings",
        "archive",
        "backfill",
        "dry_run_archive",
        "dry_run_backfill",
        "plan_archive",
        "plan_backfill",
        "read_archive",
    ),
    "audit": ("audit", "dry_run_audit", "plan_audit"),
    "audit_settings": ("AuditSettings", "AuditedGroup"),
    "history": ("HistorySettings", "dry_run_history", "history", "plan_history"),
    "mirror": ("MirrorSettings", "dry_run_mirror", "mirror", "plan_mirror"),
    "progress": ("take_snapshot",),
    "report": ("dry_run_report", "plan_report", "report"),
    "report_settings": ("ReportSettings",),
    "replay": ("dry_run_replay", "plan_replay", "replay"),
    "replay_settings": ("ReplaySettings",),
    "sql": ("SqlSettings", "dry_run_sql", "plan_sql", "sql"),
    "steps": ("Plan",),
    "store": ("StoreSettings", "dry_run_store", "plan_store", "store"),
    "verdict": ("Verdict",),
    "watch": ("Progress", "Watch"),
}
"""Which module of `pipelines` has which names."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.pipelines.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
