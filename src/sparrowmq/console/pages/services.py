"""Services of the coordinator: leader, runs and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparrowmq.console.pages import over_time
from sparrowmq.console.pages.columns import SERVICES, service_rows
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import history, upkeep, watching
from sparrowmq.coordinator.api.shared import Reason
from sparrowmq.coordinator.api.watching import ServiceChange
from sparrowmq.coordinator.services.housekeeping.recorder import KIND as RECORDER
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

RUNS: Final = (
    Column("started_at", "time"),
    Column("took_ms", "span"),
    Column("outcome", "state", filtered=True),
    Column("counts"),
    Column("message"),
    Column("epoch", "number"),
)
OPTIONS: Final = (
    Column("name"),
    Column("value", "number"),
    Column("default", "number"),
    Column("low", "number"),
    Column("high", "number"),
    Column("help"),
)
FINDINGS: Final = (
    Column("kind", filtered=True),
    Column("object"),
    Column("text", "long"),
    Column("group", link=lambda row: at("groups", row["group"]) if row["group"] else ""),
    Column("topic", link=lambda row: at("topics", row["topic"]) if row["topic"] else ""),
    Column("found_ms", "time"),
    Column("repair"),
)
GRAINS: Final = (Column("step_ms", "span"), Column("keep_ms", "span"))
INTERVAL: Final = "interval_seconds"


async def services(visit: Visit) -> Values:
    """All services."""
    rows = service_rows(await visit.call(watching.list_services, visit.caller), visit.words)
    return {"table": await visit.table("services", SERVICES, rows, sort="name")}


async def service(visit: Visit) -> Values:
    """One service: its leader, the end of the lease, and its next run."""
    found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
    (row,) = service_rows([found], visit.words)
    facts = (
        ("title", "text", row["title"]),
        ("state", "state", row["state"]),
        ("pause_reason", "text", row["pause_reason"] or "–"),
        ("leader", "text", row["leader"]),
        ("epoch", "number", row["epoch"]),
        ("lease_ends_ms", "time", row["lease_ends_ms"]),
        ("interval_ms", "span", row["interval_ms"]),
        ("next_run_ms", "time", row["next_run_ms"] or 0),
    )
    return {"facts": facts}


async def options(visit: Visit) -> Values:
    """Its options, with ranges."""
    found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
    return {"table": await visit.table("options", OPTIONS, found["options"], empty="empty.options")}


async def runs(visit: Visit) -> Values:
    """Its last runs."""
    found = await visit.call(watching.service_runs, visit.named("name"), visit.caller, 200)
    rows = [
        run
        | {
            "took_ms": run["ended_at"] - run["started_at"],
            "counts": ", ".join(f"{name} {number}" for name, number in run["counts"].items()),
        }
        for run in found
    ]
    return {"table": await visit.table("runs", RUNS, rows, sort="-started_at", empty="empty.runs")}


async def findings(visit: Visit) -> Values:
    """What its last run found, with the proposed repairs."""
    found = await visit.call(upkeep.list_findings, visit.caller, visit.named("name"))
    rows = [
        one
        | {
            "found_ms": one["first_ms"],
            "repair": f"{one['id']}: {one['repair']['text']}" if one["repair"] else "–",
        }
        for one in found
    ]
    table = await visit.table("findings", FINDINGS, rows, sort="found_ms", empty="empty.findings")
    notes = [visit.words("service.repair")] if any(one["repair"] for one in found) else []
    return {"table": table, "notes": notes}


async def stored(visit: Visit) -> Values:
    """How much the history holds, and its limit."""
    found = await visit.call(history.history_size, visit.caller)
    facts = [("series", "number", found["series"]), ("series_max", "number", found["series_max"])]
    facts += [("blocks", "number", found["blocks"]), ("held_bytes", "bytes", found["bytes"])]
    return {"facts": facts, "notes": [visit.words("history.deletes")]}


async def grains(visit: Visit) -> Values:
    """The steps of the history, and how long their values are kept."""
    found = await visit.call(history.history_size, visit.caller)
    return {"table": await visit.table("grains", GRAINS, found["grains"], sort="step_ms")}


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    kept = [("do.stored", "/figures")] if visit.named("name") == RECORDER.name else []
    if not visit.may(RoleRight.OPERATE):
        return kept
    base = at("services", visit.named("name"))
    return kept + [
        (f"do.{name}", f"{base}/{name}") for name in ("run", "pause", "resume", "hand-over", "settings")
    ]


# Changes


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _settings(visit: Visit) -> Sequence[Field]:
    found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
    seconds = f"{found['interval_ms'] / 1000:g}"
    least = visit.words("form.at-least", low=f"{found['interval_min_ms'] / 1000:g} s")
    fields = [Field(INTERVAL, "form.interval", "decimal", seconds, help=least)]
    for one in found["options"]:
        about = f"{one['help']} ({one['low']}–{one['high']})"
        fields.append(Field(one["name"], "", "number", str(one["value"]), help=about))
    return fields


async def _preview_settings(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
    change = _change(found, given, "")
    says = []
    if change.interval_ms is not None:
        says.append(f"{visit.words('column.interval_ms')}: {found['interval_ms']} → {change.interval_ms} ms")
    old = {one["name"]: one["value"] for one in found["options"]}
    says += [f"{name}: {old[name]} → {value}" for name, value in change.options.items()]
    return Preview(says or [visit.words("form.nothing")], stamp=repr((found["interval_ms"], old)))


def _change(found: Mapping[str, object], given: Mapping[str, str], reason: str) -> ServiceChange:
    """The changed values. Raises `RefusedError` (422) if a value is not a number."""
    known: Sequence[Mapping[str, object]] = found["options"]  # type: ignore[assignment]
    wanted = {str(one["name"]): _whole(given.get(str(one["name"]), str(one["value"]))) for one in known}
    options = {
        str(one["name"]): wanted[str(one["name"])]
        for one in known
        if one["value"] != wanted[str(one["name"])]
    }
    try:
        interval = round(float(given[INTERVAL]) * 1000) if INTERVAL in given else found["interval_ms"]
    except (ValueError, OverflowError):
        raise RefusedError(f"{given[INTERVAL][:40]!r} is not a number of seconds", status=422) from None
    changed = None if interval == found["interval_ms"] else interval
    return ServiceChange(interval_ms=changed, options=options, reason=reason)  # type: ignore[arg-type]


def _whole(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 15):
        raise RefusedError(f"{text[:40]!r} is not a whole number", status=422)
    return sign * int(digits)


async def _save(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
    change = _change(found, given, reason)
    await visit.call(watching.edit_service, visit.named("name"), change, visit.caller)
    return "saved"


def _simple(name: str) -> Form:
    """A form without fields: pause, resume, run, hand-over."""
    routes = {
        "pause": watching.pause_service,
        "resume": watching.resume_service,
        "run": watching.run_service,
        "hand-over": watching.hand_over_service,
    }
    route = routes[name]

    async def preview(visit: Visit, given: Mapping[str, str]) -> Preview:
        found = await visit.call(watching.one_service, visit.named("name"), visit.caller)
        leader = found["leader"] or visit.words("word.nobody")
        says = visit.words(f"form.service-{name}", name=found["name"], leader=leader)
        return Preview([says], stamp=repr((found["paused"], found["epoch"])))

    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        await visit.call(route, visit.named("name"), Reason(reason=reason), visit.caller)
        return name

    return Form(f"/services/{{name}}/{name}", f"do.{name}", "services", _nothing, preview, act, _back)


def _back(visit: Visit) -> str:
    return at("services", visit.named("name"))


PAGES: Final = (
    Page("/services", "page.services", "services", (PagePart("services", services),)),
    Page(
        "/services/{name}",
        "page.service",
        "services",
        (
            PagePart("service", service, template="facts"),
            over_time.part(over_time.service),
            PagePart("findings", findings),
            PagePart("options", options),
            PagePart("runs", runs),
        ),
        links=_links,
    ),
    Page(
        "/figures",
        "page.figures",
        "services",
        (PagePart("stored", stored, template="facts"), PagePart("grains", grains)),
    ),
)
FORMS: Final[Sequence[Form]] = (
    *(_simple(name) for name in ("pause", "resume", "run", "hand-over")),
    Form(
        "/services/{name}/settings",
        "do.settings",
        "services",
        _settings,
        _preview_settings,
        _save,
        _back,
        looks_first=True,
    ),
)
