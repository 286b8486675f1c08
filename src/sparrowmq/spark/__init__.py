"""The Spark data source `rocketmq`, batches and streams in Arrow batches; and the pipelines on it.

    spark = session()
    options = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}
    orders = spark.readStream.format("rocketmq").options(**options).load()

`register` makes it known to a session of your own, as `rocketmq` and `sparrowmq`, on the program's Python.
Spark finds it by itself where its own `python3` has the package (module `pyspark_rocketmq`). Needs pyspark,
pyarrow and numpy: `pip install 'sparrowmq[spark]'`. The names of `__all__` are imported when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparrowmq.spark.bodies.bad_rows import BadRows, BadRowsCount, TooManyBadRowsError
    from sparrowmq.spark.metrics.listener import MetricsListener
    from sparrowmq.spark.metrics.progress import lag, queue_lags, source_metrics
    from sparrowmq.spark.pipelines.archive.archive import (
        ArchiveSettings,
        archive,
        backfill,
        dry_run_archive,
        dry_run_backfill,
        plan_archive,
        plan_backfill,
        read_archive,
    )
    from sparrowmq.spark.pipelines.audit.audit import audit, dry_run_audit, plan_audit
    from sparrowmq.spark.pipelines.audit.settings import AuditedGroup, AuditSettings
    from sparrowmq.spark.pipelines.audit.verdict import Verdict
    from sparrowmq.spark.pipelines.backfill.job import (
        backfill_windows,
        dry_run_backfill_windows,
        plan_backfill_windows,
        read_backfill,
    )
    from sparrowmq.spark.pipelines.backfill.settings import BackfillSettings
    from sparrowmq.spark.pipelines.common.steps import Plan
    from sparrowmq.spark.pipelines.common.watch import Progress, Watch
    from sparrowmq.spark.pipelines.mirror.mirror import MirrorSettings, dry_run_mirror, mirror, plan_mirror
    from sparrowmq.spark.pipelines.query.history import (
        HistorySettings,
        dry_run_history,
        history,
        plan_history,
    )
    from sparrowmq.spark.pipelines.query.sql import SqlSettings, dry_run_sql, plan_sql, sql
    from sparrowmq.spark.pipelines.query.store import StoreSettings, dry_run_store, plan_store, store
    from sparrowmq.spark.pipelines.replay.replay import dry_run_replay, plan_replay, replay
    from sparrowmq.spark.pipelines.replay.settings import ReplaySettings
    from sparrowmq.spark.pipelines.report.report import dry_run_report, plan_report, report
    from sparrowmq.spark.pipelines.report.settings import ReportSettings
    from sparrowmq.spark.pipelines.report.snapshots import take_snapshot
    from sparrowmq.spark.sessions import session
    from sparrowmq.spark.source import register

__all__ = [
    "ArchiveSettings",
    "AuditSettings",
    "AuditedGroup",
    "BackfillSettings",
    "BadRows",
    "BadRowsCount",
    "HistorySettings",
    "MetricsListener",
    "MirrorSettings",
    "Plan",
    "Progress",
    "ReplaySettings",
    "ReportSettings",
    "SqlSettings",
    "StoreSettings",
    "TooManyBadRowsError",
    "Verdict",
    "Watch",
    "archive",
    "audit",
    "backfill",
    "backfill_windows",
    "dry_run_archive",
    "dry_run_audit",
    "dry_run_backfill",
    "dry_run_backfill_windows",
    "dry_run_history",
    "dry_run_mirror",
    "dry_run_replay",
    "dry_run_report",
    "dry_run_sql",
    "dry_run_store",
    "history",
    "lag",
    "mirror",
    "plan_archive",
    "plan_audit",
    "plan_backfill",
    "plan_backfill_windows",
    "plan_history",
    "plan_mirror",
    "plan_replay",
    "plan_report",
    "plan_sql",
    "plan_store",
    "queue_lags",
    "read_archive",
    "read_backfill",
    "register",
    "replay",
    "report",
    "session",
    "source_metrics",
    "sql",
    "store",
    "take_snapshot",
]

_MODULES: Final = {
    "bodies.bad_rows": ("BadRows", "BadRowsCount", "TooManyBadRowsError"),
    "metrics.listener": ("MetricsListener",),
    "metrics.progress": ("lag", "queue_lags", "source_metrics"),
    "pipelines.archive.archive": (
        "ArchiveSettings",
        "archive",
        "backfill",
        "dry_run_archive",
        "dry_run_backfill",
        "plan_archive",
        "plan_backfill",
        "read_archive",
    ),
    "pipelines.audit.audit": ("audit", "dry_run_audit", "plan_audit"),
    "pipelines.audit.settings": ("AuditSettings", "AuditedGroup"),
    "pipelines.audit.verdict": ("Verdict",),
    "pipelines.backfill.job": (
        "backfill_windows",
        "dry_run_backfill_windows",
        "plan_backfill_windows",
        "read_backfill",
    ),
    "pipelines.backfill.settings": ("BackfillSettings",),
    "pipelines.common.steps": ("Plan",),
    "pipelines.common.watch": ("Progress", "Watch"),
    "pipelines.mirror.mirror": ("MirrorSettings", "dry_run_mirror", "mirror", "plan_mirror"),
    "pipelines.query.history": ("HistorySettings", "dry_run_history", "history", "plan_history"),
    "pipelines.query.sql": ("SqlSettings", "dry_run_sql", "plan_sql", "sql"),
    "pipelines.query.store": ("StoreSettings", "dry_run_store", "plan_store", "store"),
    "pipelines.replay.replay": ("dry_run_replay", "plan_replay", "replay"),
    "pipelines.replay.settings": ("ReplaySettings",),
    "pipelines.report.report": ("dry_run_report", "plan_report", "report"),
    "pipelines.report.settings": ("ReportSettings",),
    "pipelines.report.snapshots": ("take_snapshot",),
    "sessions": ("session",),
    "source": ("register",),
}
"""Maps each module to the names it exports; no package may have one of these names."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
