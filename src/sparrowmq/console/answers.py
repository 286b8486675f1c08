"""Answers requests for pages: login, pages and their parts, live updates, CSV, forms."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from sparrowmq.console.federated import GO, ONWARD_CHARS_MAX, OUT
from sparrowmq.console.forms import ENTER, KEPT, fillable, kept, linked, submitted
from sparrowmq.console.rendering import THEMES, render
from sparrowmq.console.safety import CSRF_FIELD, ConsoleAddress, csrf_of, inner_path, is_csrf
from sparrowmq.console.streams import CountedStream, Streams
from sparrowmq.console.tables import as_csv
from sparrowmq.console.texts import LANGUAGES, Words, preferred, words
from sparrowmq.console.visits import Done, Form, Loaded, Page, Preview, Values, Visit, load
from sparrowmq.coordinator.api import people
from sparrowmq.coordinator.api.shared import ApiCaller, Context, caller_of
from sparrowmq.core.errors import RefusedError, SparrowError

Handler = Callable[[Request], Awaitable[Response]]
LIVE_SECONDS: Final = 5.0
"""Seconds between two updates of an open page."""
LIVE_PATIENCE_SECONDS: Final = 4.5
"""Maximum age of what an open page shares with others: all pages that show one thing ask for it once."""
LIVE_TURNS: Final = 7
"""Number of updates after which a browser reconnects, which keeps a request within the server's time
limit.
"""
STREAM_RETRY_SECONDS: Final = "30"
"""When a page asks again that could not be followed."""
STOP_LOOK_SECONDS: Final = 0.5
LANGUAGE: Final = "sparrow_language"
THEME: Final = "sparrow_theme"
_log = logging.getLogger("sparrowmq.console")


class Desk:
    """Answers requests, using the context of the API."""

    def __init__(self, context: Context, place: ConsoleAddress, provider: str | None = None) -> None:
        """`provider` is the name of the login provider, if there is one."""
        self._context = context
        self._place = place
        self._streams = Streams(context.streams_max)
        self.provider = provider

    # Who is there

    async def login(self, request: Request) -> Response:
        """The form for name and password; or the result of a submitted one."""
        fields = await submitted(request) if request.method == "POST" else {}
        onward = inner_path(fields.get("next") or request.query_params.get("next", "/"))
        if request.method == "GET":
            return await self._ask_who(request, onward)
        self._need_own(request)
        try:
            token = await self._enter(request, fields)
        except RefusedError as error:
            return await self._ask_who(request, onward, fields.get("name", ""), error)
        answer = RedirectResponse(onward, 303)
        self._set(answer, self._place.cookie, token)
        return answer

    async def _enter(self, request: Request, fields: Mapping[str, str]) -> str:
        """The token of a new session. Raises `RefusedError` for a wrong name or password."""
        body = people.Login(name=fields.get("name", "")[:64], password=fields.get("password", "")[:1000])
        made = await run_in_threadpool(people.login, body, request, self._context)
        return str(made["token"])

    async def _ask_who(
        self,
        request: Request,
        onward: str,
        name: str = "",
        error: RefusedError | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> Response:
        """The login page. `waiting` is what was typed into the form at this address."""
        values = {
            "next": onward,
            "name": name,
            "problem": "" if error is None else str(error),
            "waiting": {f"{KEPT}{field}": value for field, value in (waiting or {}).items()},
            "enter": ENTER,
        } | self._other_ways(request, onward)
        return await self._page(request, "login", values, status=200 if error is None else error.status)

    def _other_ways(self, request: Request, onward: str) -> Values:
        """The login with a provider, and the provider's logout page after a logout."""
        if self.provider is None:
            return {"provider": "", "go": "", "ends": ""}
        ends = OUT if request.query_params.get("out") else ""
        return {"provider": self.provider, "go": f"{GO}?{urlencode({'next': onward})}", "ends": ends}

    async def logout(self, request: Request) -> Response:
        """End the session."""
        caller = await self._caller(request)
        fields = await submitted(request)
        self._need_form(request, caller, fields)
        await run_in_threadpool(people.logout, caller)
        answer = RedirectResponse("/login?out=1" if self.provider is not None else "/login", 303)
        answer.delete_cookie(
            self._place.cookie, secure=self._place.is_secure, httponly=True, samesite="strict"
        )
        return answer

    async def preferences(self, request: Request) -> Response:
        """Save a language or a theme; needs no permission."""
        self._need_own(request)
        fields = await submitted(request)
        answer = RedirectResponse(inner_path(fields.get("next", "/")), 303)
        for cookie, known in ((LANGUAGE, LANGUAGES), (THEME, THEMES)):
            value = fields.get(cookie.removeprefix("sparrow_"), "")
            if value in known:
                self._set(answer, cookie, value, max_age=31_536_000)
        return answer

    # Pages

    def page(self, page: Page) -> Handler:
        """Handler for requests of a page: the whole page, its changes while it is open, or a table as CSV."""

        async def answer(request: Request) -> Response:
            visit = await self._visit(request)
            if visit is None:
                return self._to_login(request)
            asked = request.query_params
            if "_csv" in asked:
                return await _csv(visit, page, asked["_csv"])
            if asked.get("_get") in page.downloads:
                found = await page.downloads[asked["_get"]](visit)
                found.headers["Cache-Control"] = "no-store"
                return found
            if "_live" in asked and page.is_live:
                return self._follow(visit, page)
            if "_part" in asked:
                return await _one_part(visit, page, asked["_part"])
            loaded = await load(visit, page.parts)
            shown = [(one, await _part(visit, one)) for one in loaded]
            links = page.links(visit) if page.links is not None else ()
            values = {
                "page": page, "nav": page.nav, "parts": shown, "links": links, "done": _done(visit),
            }  # fmt: skip
            return await self._page(request, "page", values, visit)

        return answer

    def _follow(self, visit: Visit, page: Page) -> Response:
        """A page's changes as a stream, or 429 while there are as many as may be."""
        user = visit.caller.person.name
        limit = self._streams.enter(user)
        if limit is not None:
            again = {"Cache-Control": "no-store", "Retry-After": STREAM_RETRY_SECONDS}
            return PlainTextResponse(visit.words(limit.key, count=limit.count), 429, again)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return CountedStream(self._streams, user, self._changes(visit, page), headers)

    async def _changes(self, visit: Visit, page: Page) -> AsyncIterator[str]:
        """Parts whose content has changed, as server-sent events, until the session ends."""
        visit = replace(visit, caller=replace(visit.caller, patience_seconds=LIVE_PATIENCE_SECONDS))
        sent: dict[str, bytes] = {}  # digests: the HTML would take megabytes for fifty pages
        before: dict[str, Loaded] = {}
        yield "retry: 3000\n\n"
        for _ in range(LIVE_TURNS):
            if await self._stops_within(LIVE_SECONDS):
                return
            try:
                await run_in_threadpool(caller_of, self._context, visit.caller.text)
            except SparrowError:
                yield "event: end\ndata: {}\n\n"
                return
            for one in await load(visit, page.parts):
                if before.get(one.part.name) == one:
                    continue  # keep the values of the last time
                before[one.part.name] = one
                text = await _part(visit, one)
                digest = blake2b(text.encode(), digest_size=16).digest()
                if sent.get(one.part.name) != digest:
                    sent[one.part.name] = digest
                    yield f"data: {json.dumps({'part': one.part.name, 'html': text})}\n\n"

    async def _stops_within(self, seconds: float) -> bool:
        """Wait, and return whether the coordinator is stopping: it does not wait for open pages."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._context.stopping.is_set():
                return True
            await asyncio.sleep(STOP_LOOK_SECONDS)
        return False

    # Changes

    def form(self, form: Form) -> Handler:
        """Handler for requests of a form: its fields, the preview, and the change."""

        async def answer(request: Request) -> Response:
            visit = await self._visit(request)
            if visit is None:
                return await self._resume(request, form)
            if request.method == "GET":
                return await self._ask(visit, form, fillable(linked(request)))
            given = await submitted(request)
            self._need_own(request)
            if not is_csrf(visit.caller.text, given.get(CSRF_FIELD, "")):
                other = RefusedError(visit.words("form.other-session"), status=403)
                return await self._ask(visit, form, kept(given), look=True, error=other)
            if given.get("step") != "do":
                return await self._ask(visit, form, given, look=True)
            try:
                preview = await visit.within(form.preview(visit, given))
                if given.get("stamp", "") != preview.stamp:
                    raise RefusedError(visit.words("form.changed"), status=409)
                if form.typed is not None and given.get("typed", "") != form.typed(visit):
                    raise RefusedError(visit.words("form.typed-wrong", name=form.typed(visit)), status=422)
                if not given.get("reason", "").strip():
                    raise RefusedError(visit.words("form.reason-missing"), status=422)
                done = await form.act(visit, given, given["reason"].strip())
            except (SparrowError, ValueError) as error:
                return await self._ask(visit, form, given, look=True, error=error)
            back = form.back(visit)
            if isinstance(done, Done):
                return await self._page(
                    request, "secret", {"form": form, "nav": form.nav, "made": done, "back": back}, visit
                )
            return RedirectResponse(f"{back}{'&' if '?' in back else '?'}{urlencode({'_done': done})}", 303)

        return answer

    async def _resume(self, request: Request, form: Form) -> Response:
        """The login in the place of a form whose session has ended, then the form with what was typed.

        What another site sent is dropped: no session's cookie comes with it either.
        """
        if request.method != "POST" or not self._is_own(request):
            return self._to_login(request)
        fields = await submitted(request)
        is_login, waiting = fields.get("step") == ENTER, kept(fields)
        if not waiting:
            return self._to_login(request)
        problem = RefusedError(_words(request)("login.ended"), status=401)
        if is_login:
            try:
                token = await self._enter(request, fields)
            except RefusedError as error:
                problem = error
            else:
                return await self._resumed(request, form, token, waiting)
        name = fields.get("name", "") if is_login else ""
        return await self._ask_who(request, _link(request, fillable(waiting)), name, problem, waiting)

    async def _resumed(
        self, request: Request, form: Form, token: str, waiting: Mapping[str, str]
    ) -> Response:
        """The form in a new session, with what was typed before."""
        caller = await run_in_threadpool(caller_of, self._context, token)
        try:
            answer = await self._ask(Visit(request, caller, _words(request)), form, waiting, look=True)
        except SparrowError as error:
            answer = await self.refused(request, error)
        self._set(answer, self._place.cookie, token)
        return answer

    async def _ask(
        self,
        visit: Visit,
        form: Form,
        given: Mapping[str, str],
        *,
        look: bool = False,
        error: Exception | None = None,
    ) -> Response:
        """The form with the values entered so far, and the preview."""
        fields = await visit.within(form.fields(visit))
        preview: Preview | None = None
        hidden = {one.name for one in fields if one.kind == "password"}
        typed = {one.name: "" if one.name in hidden else given.get(one.name, one.value) for one in fields}
        if look or not form.looks_first:
            try:
                preview = await visit.within(form.preview(visit, given if look else typed))
            except (SparrowError, ValueError) as problem:
                error = error or problem
        values = {
            "form": form,
            "nav": form.nav,
            "fields": fields,
            "typed": typed,
            "preview": preview,
            "name": form.typed(visit) if form.typed is not None else "",
            "given": {name: given.get(name, "") for name in ("reason", "typed")},
            "problem": "" if error is None else _told(error),
            "back": form.back(visit),
        }
        status = 200 if error is None else int(getattr(error, "status", 422))
        return await self._page(visit.request, "form", values, visit, status=status)

    # Errors

    async def refused(self, request: Request, error: Exception) -> Response:
        """A refusal, as a page."""
        status = int(getattr(error, "status", 0) or getattr(error, "status_code", 503))
        text = str(getattr(error, "detail", "")) or str(error)
        if status == 404 and isinstance(error, HTTPException):
            text = _words(request)("error.nowhere", path=request.url.path[:200])
        visit = None
        if status != 401:
            try:
                visit = await self._visit(request)
            except SparrowError:
                pass
        page = await self._page(request, "error", {"status": status, "text": text}, visit, status=status)
        if again := getattr(error, "retry_seconds", 0):
            page.headers["Retry-After"] = str(again)
        return page

    async def broken(self, request: Request, error: Exception) -> Response:
        """An unexpected error: the log has the details, the reader gets none."""
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        text = _words(request)("part.broken")
        return await self._page(request, "error", {"status": 500, "text": text}, None, status=500)

    async def show(self, request: Request, template: str, values: Values, status: int) -> Response:
        """A page that needs no login."""
        return await self._page(request, template, values, status=status)

    # Inside

    async def _visit(self, request: Request) -> Visit | None:
        try:
            caller = await self._caller(request)
        except RefusedError as error:
            if error.status != 401:
                raise
            return None
        return Visit(request, caller, _words(request))

    async def _caller(self, request: Request) -> ApiCaller:
        text = request.cookies.get(self._place.cookie, "")[:200]
        return await run_in_threadpool(caller_of, self._context, text)

    def _is_own(self, request: Request) -> bool:
        """Whether a page of the console sent the request."""
        headers = request.headers
        host = headers.get("host", "")
        return self._place.is_own(headers.get("origin"), headers.get("sec-fetch-site"), host)

    def _need_own(self, request: Request) -> None:
        """Raise `RefusedError` (403) if no page of the console sent the request."""
        if not self._is_own(request):
            raise RefusedError(_words(request)("error.origin"), status=403)

    def _need_form(self, request: Request, caller: ApiCaller, fields: Mapping[str, str]) -> None:
        """Raise `RefusedError` (403) if no form of this session sent the request."""
        self._need_own(request)
        if not is_csrf(caller.text, fields.get(CSRF_FIELD, "")):
            raise RefusedError(_words(request)("error.form"), status=403)

    def _to_login(self, request: Request) -> Response:
        if "_live" in request.query_params:
            return Response("event: end\ndata: {}\n\n", media_type="text/event-stream")
        fields = [
            (key, value) for key, value in request.query_params.multi_items() if not key.startswith("_")
        ]
        path = _path(request)
        path += f"?{urlencode(fields)}" if fields and request.method == "GET" else ""
        answer = RedirectResponse(f"/login?{urlencode({'next': path})}" if path != "/" else "/login", 303)
        if self._place.cookie in request.cookies:
            answer.delete_cookie(
                self._place.cookie, secure=self._place.is_secure, httponly=True, samesite="strict"
            )
        return answer

    def _set(self, answer: Response, name: str, value: str, max_age: int | None = None) -> None:
        secure = self._place.is_secure
        answer.set_cookie(
            name, value, max_age=max_age, path="/", secure=secure, httponly=True, samesite="strict"
        )

    async def _page(
        self,
        request: Request,
        template: str,
        values: Mapping[str, Any],
        visit: Visit | None = None,
        *,
        status: int = 200,
    ) -> Response:
        theme = request.cookies.get(THEME, "auto")
        common: Values = {
            "t": _words(request),
            "visit": visit,
            "theme": theme if theme in THEMES else "auto",
            "csrf": csrf_of(visit.caller.text) if visit is not None else "",
            "here": _here(request),
            "nav": "",
            "named": " ".join(map(str, request.path_params.values())),
        }
        text = await run_in_threadpool(render, template, **common | dict(values))
        return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})


async def _part(visit: Visit, one: Loaded) -> str:
    """A part's HTML. Templates are rendered on threads: a long table takes time."""
    template = "parts/problem" if one.problem else f"parts/{one.part.template}"
    common: Values = {"t": visit.words, "visit": visit, "part": one.part, "problem": one.problem}
    return await run_in_threadpool(render, template, **common | one.values)


async def _one_part(visit: Visit, page: Page, name: str) -> Response:
    """A single part, for scripts. Raises `RefusedError` (404)."""
    parts = [one for one in page.parts if one.name == name]
    if not parts:
        raise RefusedError(f"this page has no part {name[:64]!r}", status=404)
    (loaded,) = await load(visit, parts)
    return HTMLResponse(await _part(visit, loaded), headers={"Cache-Control": "no-store"})


async def _csv(visit: Visit, page: Page, name: str) -> Response:
    """A page's table of that name. Raises `RefusedError` (404), or the error that prevented loading it."""
    for one in await load(visit, page.parts):
        table = one.values.get("table")
        if table is not None and table.name == name:
            headers = {
                "Content-Disposition": f'attachment; filename="{name}.csv"',
                "Cache-Control": "no-store",
            }
            text = await run_in_threadpool(as_csv, table, visit.words)
            return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
        if one.problem and one.part.name == name:
            raise RefusedError(one.problem, status=503)
    raise RefusedError(f"this page has no table {name[:64]!r}", status=404)


def _told(error: Exception) -> str:
    """What the reader is told; of a body that the API refuses, its first wrong field."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _words(request: Request) -> Words:
    chosen = request.cookies.get(LANGUAGE, "")
    return words(chosen if chosen in LANGUAGES else preferred(request.headers.get("accept-language", "")))


def _path(request: Request) -> str:
    """The path, as used in links."""
    return quote(str(request.scope["path"]), safe="/")


def _link(request: Request, fields: Mapping[str, str]) -> str:
    """The link that fills in these fields, for a login with a provider; without them if it is too long."""
    filled = f"{_path(request)}?{urlencode(fields)}"
    return filled if fields and len(filled) <= ONWARD_CHARS_MAX else _path(request)


def _here(request: Request) -> str:
    """The page's own address, to return to."""
    if request.method != "GET" or request.url.path == "/login":
        return inner_path(request.query_params.get("next", "/")) if request.url.path == "/login" else "/"
    fields = [(name, value) for name, value in request.query_params.multi_items() if not name.startswith("_")]
    return inner_path(_path(request) + (f"?{urlencode(fields)}" if fields else ""))


def _done(visit: Visit) -> str:
    """The result of the last change, as a key of the catalogue; empty for an unknown key."""
    name = visit.request.query_params.get("_done", "")
    return visit.words.named("done", name) if name and visit.words.named("done", name) != name else ""
