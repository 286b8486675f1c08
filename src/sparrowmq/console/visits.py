"""One request of a logged-in user, and the elements of pages: parts, forms.

Each part is loaded separately with its own deadline: if a server does not answer, only that part is greyed
out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sparrowmq.console.tables import Column, Row, Table, TableQuery, make_table
from sparrowmq.console.texts import Words
from sparrowmq.coordinator.api.shared import ApiCaller
from sparrowmq.coordinator.users.roles import RoleRight, allowed
from sparrowmq.core.errors import RefusedError, SparrowError

P = ParamSpec("P")
T = TypeVar("T")
Values = dict[str, Any]
PART_SECONDS: Final = 2.5
"""Time limit of a part; longer than the API's limit for a query of the whole cluster."""
SEARCH_SECONDS: Final = 20.0
"""Time limit of a part that searches brokers on the reader's request, and of what a form has to know."""
ROWS_AT_ONCE: Final = 300
PASSWORDS: Final = frozenset({"old", "new", "password"})
"""The names of fields for passwords; no other field has one of them."""
_log = logging.getLogger("sparrowmq.console")


@dataclass(frozen=True)
class Visit:
    """A request, its user, and the words in the user's language."""

    request: Request
    caller: ApiCaller
    words: Words
    asked: dict[str, asyncio.Task[Any]] = field(default_factory=dict, repr=False)
    """Values shared by the parts of one page, see `once`."""

    @property
    def query(self) -> Mapping[str, str]:
        """The fields of the address that the reader may set."""
        return {name: value for name, value in self.request.query_params.items() if not name.startswith("_")}

    def named(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    @property
    def path(self) -> str:
        """The path, as used in links."""
        return quote(str(self.request.scope["path"]), safe="/")  # `url.path` is partly quoted

    async def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of a function of the API that reads the database: called on a thread."""
        return await run_in_threadpool(function, *args, **named)

    async def within(self, asked: Awaitable[T]) -> T:
        """What a form has to know, in time. Raises `RefusedError` (503)."""
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                return await asked
        except TimeoutError:
            text = self.words("form.late", seconds=f"{SEARCH_SECONDS:g}")
            raise RefusedError(text, status=503) from None

    async def once(self, key: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `ask()`, called once for all parts of the page that currently need it."""
        task = self.asked.get(key)
        if task is None:
            self.asked[key] = task = asyncio.create_task(ask())
        found: T = await asyncio.shield(task)  # a part that times out does not cancel it for the others
        return found

    def may(self, right: RoleRight, *things: tuple[str, str]) -> bool:
        """Whether the reader has the permission; the API checks it again."""
        return allowed(self.caller.person.role, self.caller.person.objects, right, *things)

    async def table(self, name: str, columns: Sequence[Column], rows: Sequence[Row], **how: Any) -> Table:
        """A table of rows according to the address; many rows are searched and sorted on a thread."""
        wanted = TableQuery(self.path, self.query, "_csv" in self.request.query_params)
        if len(rows) > ROWS_AT_ONCE:
            return await run_in_threadpool(make_table, name, columns, rows, wanted, **how)
        return make_table(name, columns, rows, wanted, **how)


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of a page. `load` returns the values for its template; `title` is the key of its heading."""

    name: str
    load: Callable[[Visit], Awaitable[Values]]
    template: str = "table"
    title: str = ""
    is_wide: bool = True
    seconds: float = PART_SECONDS

    @property
    def heading(self) -> str:
        """The key of its title."""
        return self.title or f"part.{self.name}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded part, or the reason why loading failed: a text of the catalogue or an error's own."""

    part: PagePart
    values: Values = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its address, title and parts. `nav` is its entry in the menu."""

    path: str
    title: str
    nav: str
    parts: Sequence[PagePart]
    is_live: bool = True
    downloads: Mapping[str, Callable[[Visit], Awaitable[Response]]] = field(default_factory=dict)
    """Files that the page offers, by the field `_get` of its address."""
    links: Callable[[Visit], Sequence[tuple[str, str]]] | None = None
    """Available changes: keys of words, and addresses of forms."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. `kind` is text, number, decimal, moment, select, lines, or password; `label` the key
    of its words. A moment that was not typed yet is shown in the reader's time zone.

    A password is typed with the reason and is never sent back to the browser: `PASSWORDS` has its name.
    """

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    choices: Sequence[tuple[str, str]] = ()
    help: str = ""
    needed: bool = True

    def __post_init__(self) -> None:
        if (self.kind == "password") is not (self.name in PASSWORDS):
            raise ValueError(
                f"a password, and nothing else, is named one of {sorted(PASSWORDS)}: {self.name}"
            )


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a change: sentences in the reader's language, and a table. `stamp` must be unchanged
    when the change is made; after another change, a new preview is shown.
    """

    says: Sequence[str] = ()
    table: Table | None = None
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a change: a key of the section `done`, and a password that is shown only once.

    `label` is the key of the secret's name.
    """

    key: str
    secret: str = field(repr=False)
    label: str


@dataclass(frozen=True, slots=True)
class Form:
    """A change: its fields, its preview, and how the API makes it.

    With `typed` the user must type that name, as for every destructive change. `act` returns the key of the
    success message, or `Done` with a secret.
    """

    path: str
    title: str
    nav: str
    fields: Callable[[Visit], Awaitable[Sequence[Field]]]
    preview: Callable[[Visit, Mapping[str, str]], Awaitable[Preview]]
    act: Callable[[Visit, Mapping[str, str], str], Awaitable[str | Done]]
    back: Callable[[Visit], str]
    typed: Callable[[Visit], str] | None = None
    looks_first: bool = False
    """Whether its preview depends on fields: then the preview is shown before the button that makes the
    change.
    """


async def load(visit: Visit, parts: Sequence[PagePart]) -> list[Loaded]:
    """Load all parts concurrently, each with its own time limit."""
    visit.asked.clear()
    try:
        return list(await asyncio.gather(*(_load(visit, part) for part in parts)))
    finally:
        for task in visit.asked.values():
            task.cancel()
        await asyncio.gather(*visit.asked.values(), return_exceptions=True)


async def _load(visit: Visit, part: PagePart) -> Loaded:
    try:
        async with asyncio.timeout(part.seconds):
            return Loaded(part, await part.load(visit))
    except SparrowError as error:
        return Loaded(part, problem=str(error))
    except TimeoutError:
        return Loaded(part, problem=visit.words("part.late", seconds=f"{part.seconds:g}"))
    except Exception:
        _log.exception("the part %s of %s", part.name, visit.request.url.path)
        return Loaded(part, problem=visit.words("part.broken"))


def at(*names: str | int) -> str:
    """A path of the console that contains names, quoted if necessary."""
    return "/" + "/".join(quote(str(one), safe="") for one in names)
