"""The fields of submitted forms: how they are read, and which of them come back after a login.

A session may end while a form is filled in. The answer to that form is then a login page that has what was
typed in hidden fields; no server stores it. After the login the form is shown again with these fields, its
preview is made again, and nothing changes before the person confirms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request

from sparrowmq.console.visits import PASSWORDS
from sparrowmq.core.errors import RefusedError

FIELDS_MAX: Final = 100
OF_THE_PERSON: Final = frozenset({"reason", "typed", "csrf", "stamp", "step"})
"""Fields of a form that no link fills in."""
ENTER: Final = "enter"
"""The step of a form that logs in first."""
KEPT: Final = "kept."
"""Before the name of a field that waits on a login page."""
KEPT_CHARS_MAX: Final = 48 * 1024
"""As they are sent: with a name and a password they fit into one body."""


async def submitted(request: Request) -> dict[str, str]:
    """The fields of a submitted form; several with one name are joined by line feeds.

    Raises `RefusedError` (422) if the form is not ours.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(
            f"a form is sent as application/x-www-form-urlencoded, not {kind[:60]!r}", status=422
        )
    text = (await request.body()).decode("latin-1")
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RefusedError(f"a form has at most {FIELDS_MAX} fields", status=422) from None
    return {name: "\n".join(values) for name, values in found.items()}


def linked(request: Request) -> dict[str, str]:
    """The fields of a link to a form; several with one name are joined by line feeds, as if it were
    submitted.
    """
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if not name.startswith("_"):
            found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def fillable(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields that a link fills in. Who confirms writes the reason and the name of what is destroyed."""
    return {name: value for name, value in fields.items() if name not in OF_THE_PERSON | PASSWORDS}


def kept(fields: Mapping[str, str]) -> dict[str, str]:
    """What comes back after a login, from a form or the login page that has it: the fields of a link, and the
    reason. Nothing if they are too large.
    """
    if fields.get("step") == ENTER:
        fields = {name.removeprefix(KEPT): value for name, value in fields.items() if name.startswith(KEPT)}
    found = fillable(fields)
    if reason := fields.get("reason"):
        found["reason"] = reason
    return found if len(urlencode(found)) <= KEPT_CHARS_MAX else {}
