"""The audit log: who changed what, when and why. It is read page by page, because a year of it is long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from sparrowmq.console.pages.columns import audit_rows
from sparrowmq.console.tables import PAGE_ROWS, Column
from sparrowmq.console.visits import Form, Page, PagePart, Values, Visit
from sparrowmq.coordinator.api import watching
from sparrowmq.coordinator.api.told.audit_export import export_audit
from sparrowmq.coordinator.records.audit_files import AuditFormat

NAME: Final = "audit"
FILTERS: Final = ("actor", "action", "kind", "object")
COLUMNS: Final = (
    Column("at", "time"),
    Column("actor"),
    Column("action"),
    Column("object"),
    Column("before"),
    Column("after"),
    Column("reason"),
    Column("generation", "number"),
)


def _picked(visit: Visit) -> dict[str, str]:
    return {name: visit.query.get(f"{NAME}.is.{name}", "")[:600].strip() for name in FILTERS}


async def entries(visit: Visit) -> Values:
    """Entries that match all fields of the address exactly, the newest first."""
    picked, before = _picked(visit), _number(visit.query.get(f"{NAME}.before", ""))
    count = PAGE_ROWS + 1
    found = await visit.call(watching.list_audit, visit.caller, **picked, before_id=before, count=count)
    older = found[PAGE_ROWS - 1]["id"] if len(found) > PAGE_ROWS else None
    rows = audit_rows(found[:PAGE_ROWS])
    for row in rows:
        row["generation"] = "" if row["generation"] is None else row["generation"]
    table = await visit.table(NAME, COLUMNS, rows, empty="empty.audit")
    everything = replace(table, rows=rows, found=len(rows), matching=rows, older=older, pages=1, search="")
    fields = {f"{NAME}.is.{name}": value for name, value in picked.items() if value}
    files = [(form.name, f"{visit.path}?{urlencode({**fields, '_get': form})}") for form in AuditFormat]
    return {"table": everything, "picked": picked, "newest": before is None, "files": files}


def _file(form: AuditFormat) -> Callable[[Visit], Awaitable[Response]]:
    """The download of all entries that match the address."""

    async def download(visit: Visit) -> Response:
        return await export_audit(visit.caller, form, **_picked(visit))

    return download


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


PAGES: Final = (
    Page(
        "/audit",
        "page.audit",
        "audit",
        (PagePart(NAME, entries, template="audit", seconds=20.0),),
        is_live=False,
        downloads={str(form): _file(form) for form in AuditFormat},
    ),
)
FORMS: Final[Sequence[Form]] = ()
