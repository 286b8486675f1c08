"""Routes of pipelines on Spark: each reports its progress itself, with the token of any user."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from sparrowmq.coordinator.api.shared import Answer, ApiCaller, RequestBody, Who
from sparrowmq.coordinator.records import pipelines
from sparrowmq.coordinator.records.pipelines import PipelineRow
from sparrowmq.coordinator.users.roles import RoleRight, allowed

router = APIRouter(prefix="/pipelines", tags=["pipelines"])
TOPICS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 500
MEAN_SECONDS_MIN: Final = 5.0
COUNT_MAX: Final = (1 << 63) - 1
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.@:-]{1,100}$")]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class TopicWaits(RequestBody):
    """The lag of one topic; `seconds` is the age of the oldest message, null if unknown."""

    topic: str = Field(max_length=255)
    messages: Count
    seconds: Seconds | None = None


class PipelineReport(RequestBody):
    """The progress of one run since its start. `bytes` are those written; `lag` is null if unknown.

    `topics` are at most 100, those with the most lag.
    """

    kind: str = Field(min_length=1, max_length=32)
    run: str = Field(min_length=1, max_length=64)
    state: Literal["running", "done", "stopped", "failed"] = "running"
    batches: Count = 0
    rows: Count = 0
    bytes: Count = 0
    lag: Count | None = None
    batch_seconds: Seconds = 0.0
    bad: Count | None = None
    topics: list[TopicWaits] = Field(default_factory=list, max_length=TOPICS_MAX)
    error: str = Field(default="", max_length=ERROR_CHARS_MAX)


@router.get("")
def list_pipelines(who: Who) -> list[Answer]:
    """All pipelines that reported here within a month, with their last progress.

    A running one that has reported nothing for a minute is `silent`.
    """
    who.need(RoleRight.READ)
    return [view(row) for row in who.read(pipelines.every)]


@router.get("/{name}")
def one_pipeline(name: Name, who: Who) -> Answer:
    """One pipeline."""
    who.need(RoleRight.READ)
    return view(who.read(lambda connection: pipelines.one(connection, name)))


@router.put("/{name}")
def report_pipeline(name: Name, body: PipelineReport, who: Who) -> Answer:
    """Report the progress of a pipeline; every five seconds is enough. A name belongs to the user who
    reported it first. Only a new name makes an audit entry.
    """
    who.need(RoleRight.READ)
    progress = body.model_dump(exclude={"run"})
    return view(
        who.change(
            "", lambda found, actor: pipelines.put(found, actor, name, body.run, progress, for_any=_any(who))
        )
    )


@router.delete("/{name}")
def forget_pipeline(name: Name, who: Who, reason: Annotated[str, Query(max_length=500)] = "") -> Answer:
    """Delete a pipeline's reports. A pipeline that still runs appears again with its next report."""
    who.need(RoleRight.READ)
    who.change(reason, lambda found, actor: pipelines.forget(found, actor, name, for_any=_any(who)))
    return {}


def _any(who: ApiCaller) -> bool:
    """Whether the caller may report and forget pipelines of other users."""
    return allowed(who.person.role, who.person.objects, RoleRight.OPERATE)


def view(row: PipelineRow) -> Answer:
    """A pipeline as the API shows it. `rows_per_second` is the mean since the run's first report, null in its
    first seconds.
    """
    seconds = (row.reported_at - row.began_at) / 1000
    ages = [one["seconds"] for one in row.progress["topics"] if one["messages"]]
    return {
        "name": row.name,
        **row.progress,
        "state": row.state,
        "reported_by": row.reported_by,
        "began_ms": row.began_at,
        "reported_ms": row.reported_at,
        "rows_per_second": row.progress["rows"] / seconds if seconds >= MEAN_SECONDS_MIN else None,
        "lag_seconds": max(ages, default=None) if None not in ages else None,
    }
