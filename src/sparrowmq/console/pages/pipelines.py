"""Pipelines on Spark that report to the coordinator: progress and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api.told import pipelines
from sparrowmq.coordinator.users.roles import RoleRight

PIPELINES: Final = (
    Column("name", link=lambda row: at("pipelines", row["name"])),
    Column("kind", filtered=True),
    Column("state", "state", filtered=True),
    Column("lag", "number"),
    Column("age_ms", "span"),
    Column("rows", "number"),
    Column("rows_per_second", "rate"),
    Column("reported_ms", "time"),
    Column("reported_by", filtered=True),
)
TOPICS: Final = (
    Column("topic", link=lambda row: at("topics", row["topic"])),
    Column("messages", "number"),
    Column("age_ms", "span"),
)


async def every(visit: Visit) -> Values:
    """All pipelines, those with the most lag first."""
    rows = [_row(one) for one in await visit.call(pipelines.list_pipelines, visit.caller)]
    return {"table": await visit.table("pipelines", PIPELINES, rows, sort="-lag", empty="empty.pipelines")}


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return dict(one) | {"age_ms": _ms(one["lag_seconds"])}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


async def _one(visit: Visit) -> Mapping[str, Any]:
    name = visit.named("name")
    return await visit.once("one", lambda: visit.call(pipelines.one_pipeline, name, visit.caller))


async def pipeline(visit: Visit) -> Values:
    """One pipeline."""
    one = _row(await _one(visit))
    facts = [
        ("kind", "text", one["kind"]),
        ("state", "state", one["state"]),
        ("lag", "number", one["lag"]),
        ("age_ms", "span", one["age_ms"]),
        ("rows", "number", one["rows"]),
        ("rows_per_second", "rate", one["rows_per_second"]),
        ("batches", "number", one["batches"]),
        ("batch_ms", "span", one["batch_seconds"] * 1000),
        ("written", "bytes", one["bytes"]),
        *([("bad", "number", one["bad"])] if one["bad"] is not None else []),
        ("began_ms", "time", one["began_ms"]),
        ("reported_ms", "time", one["reported_ms"]),
        ("reported_by", "text", one["reported_by"]),
        *([("error", "text", one["error"])] if one["error"] else []),
    ]
    return {"facts": facts}


async def topics(visit: Visit) -> Values:
    """What waits, topic by topic."""
    rows = [dict(one) | {"age_ms": _ms(one["seconds"])} for one in (await _one(visit))["topics"]]
    return {"table": await visit.table("topics", TOPICS, rows, sort="-messages", empty="empty.waits")}


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.OPERATE):
        return ()
    return [("do.forget-pipeline", at("pipelines", visit.named("name"), "forget"))]


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview(visit: Visit, given: Mapping[str, str]) -> Preview:
    one = await visit.call(pipelines.one_pipeline, visit.named("name"), visit.caller)
    return Preview([visit.words("form.forget-pipeline", name=one["name"])], stamp=repr(one["began_ms"]))


async def _forget(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await visit.call(pipelines.forget_pipeline, visit.named("name"), visit.caller, reason)
    return "deleted"


PAGES: Final[Sequence[Page]] = (
    Page("/pipelines", "page.pipelines", "pipelines", (PagePart("pipelines", every),)),
    Page(
        "/pipelines/{name}",
        "page.pipeline",
        "pipelines",
        (PagePart("pipeline", pipeline, template="facts"), PagePart("waits", topics)),
        links=_links,
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/pipelines/{name}/forget", "do.forget-pipeline", "pipelines", _nothing, _preview, _forget,
         lambda visit: "/pipelines"),
)  # fmt: skip
