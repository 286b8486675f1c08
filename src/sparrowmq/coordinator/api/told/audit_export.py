"""The route that exports the audit log: all matching entries, read page by page while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.responses import StreamingResponse

from sparrowmq.coordinator.api.shared import ApiCaller, Who
from sparrowmq.coordinator.api.told.answering import keep
from sparrowmq.coordinator.records import audit, audit_files
from sparrowmq.coordinator.records.audit_files import AuditFormat
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(tags=["watching"])


@router.get("/audit/export", response_class=Response)
async def export_audit(
    who: Who,
    form: Annotated[AuditFormat, Query(alias="format")] = AuditFormat.CSV,
    actor: str = "",
    action: str = "",
    kind: str = "",
    object: str = "",
) -> Response:
    """All entries of the audit log that match, the newest first, as CSV or JSON Lines. Each search field is
    an exact match.

    500 entries are in memory at a time. Each user can run one export at a time (else 429), all users together
    two (else 503). An export that is not sent within a minute is aborted.
    """
    who.need(RoleRight.READ)
    wanted = audit.Search(actor=actor, action=action, kind=kind, object=object, count=audit.PAGE_MAX)
    await keep(who.context.explorer.exports, who)
    headers = {"Content-Disposition": f'attachment; filename="audit.{form}"', "Cache-Control": "no-store"}
    return StreamingResponse(
        _text(who, wanted, form), media_type=audit_files.MEDIA_TYPES[form], headers=headers
    )


async def _text(who: ApiCaller, wanted: audit.Search, form: AuditFormat) -> AsyncIterator[str]:
    yield audit_files.head(form)
    while True:

        def page(wanted: audit.Search = wanted) -> tuple[str, int | None]:
            found = who.read(lambda connection: audit.search(connection, wanted))
            last = found[-1].id if len(found) == wanted.count else None
            return audit_files.rows(form, found), last

        text, before = await who.context.database.run(page)
        yield text
        if before is None:
            return
        wanted = replace(wanted, before_id=before)
