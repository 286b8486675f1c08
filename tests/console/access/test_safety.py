"""Attempts by strangers, other sites and other sessions on a real console; each is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.console.furnished import ODD
from tests.console.site import ANSWER_SECONDS, Reader, Site, site
from tests.support import sqlite_url

from sparrowmq.console.forms import KEPT_CHARS_MAX
from sparrowmq.console.pages import FORMS, PAGES
from sparrowmq.console.safety import HEADERS, POLICY, ConsoleAddress, csrf_of, host_name, inner_path, is_csrf
from sparrowmq.coordinator.api.app import BODY_BYTES_MAX
from sparrowmq.core.errors import SettingsError

PATHS = sorted(
    {re.sub(r"\{\w+\}", "1", path) for path in (*(one.path for one in PAGES), *(one.path for one in FORMS))}
)


def test_content_security_policy_blocks_inline_scripts() -> None:
    assert "unsafe" not in POLICY and "*" not in POLICY and "http" not in POLICY
    for one in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"):
        assert one in POLICY
    assert HEADERS["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("path", PATHS)
def test_pages_require_a_login(console: Site, path: str) -> None:
    stranger = console.reader()
    for query in ("", "?_live=1", "?_csv=audit", "?_get=csv"):
        found = stranger.get(path + query)
        if query == "?_live=1" and found.status == 200:
            assert found.text == "event: end\ndata: {}\n\n"
        else:
            assert (found.status, found.headers["location"].partition("?")[0]) == (303, "/login")
    assert stranger.post(path, {"step": "do"}).status in (303, 405)


@pytest.mark.parametrize(
    "forged",
    ["smq_forged", "smq_" + "x" * 43, "admin", "", "x" * 5000, "smq_\u00e9".encode().decode("latin-1")],
)
def test_forged_cookie_is_refused(console: Site, forged: str) -> None:
    reader = console.reader()
    reader.cookies = {"sparrow_session": forged}
    found = reader.get("/audit")
    assert found.status == 303 and found.headers["location"].startswith("/login")


def test_session_cookie_is_hidden_from_scripts_and_other_sites(console: Site) -> None:
    reader = console.reader()
    answer = reader.login("viewer", ODD.password)
    (cookie,) = answer.cookies
    assert cookie.startswith("sparrow_session=smq_")
    for one in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert one.lower() in cookie.lower()
    assert "Max-Age" not in cookie and "Domain" not in cookie


def test_cookies_are_sent_only_over_tls_when_tls_is_used(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with site("https://mq.example.com", database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as found:
        reader = found.reader()
        reader.headers["Host"] = "mq.example.com"
        fields = {"name": "admin", "password": found.password}
        answer = reader.post("/login", fields, Origin="https://mq.example.com")
        assert answer.status == 303
        (cookie,) = answer.cookies
        assert cookie.startswith("__Host-sparrow_session=") and "; Secure" in cookie
        assert reader.get("/audit").status == 200
        page = reader.page("/")
        assert "Connection refused" in page.part("lag"), "no cluster leaves parts grey, not the page"
        assert "rebalance" in page.part("services")


def test_login_creates_a_new_session(console: Site) -> None:
    """A cookie that somebody else set before the login does not become the session."""
    reader = console.reader()
    reader.cookies = {"sparrow_session": "smq_set-by-somebody-else"}
    reader.login("viewer", ODD.password)
    first = reader.cookies["sparrow_session"]
    assert first != "smq_set-by-somebody-else"
    reader.login("viewer", ODD.password)
    assert reader.cookies["sparrow_session"] != first


def test_logout_ends_the_session_everywhere(console: Site) -> None:
    reader = console.reader("viewer", ODD.password)
    kept = dict(reader.cookies)
    csrf = reader.page("/").hidden("csrf")
    assert reader.post("/logout", {"csrf": csrf}).status == 303
    assert reader.cookies == {}
    reader.cookies = kept
    assert reader.get("/").status == 303
    assert reader.post("/logout", {"csrf": csrf}).status in (303, 401)


def test_failed_login_keeps_only_the_name(console: Site) -> None:
    answer = console.reader().login('<b>"no&', "a wrong password")
    assert answer.status == 401 and "name or the password is wrong" in answer.words
    assert 'value="&lt;b&gt;&#34;no&amp;"' in answer.text and "a wrong password" not in answer.text


@pytest.mark.parametrize(
    "next_",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y"],
)
def test_login_redirects_only_within_the_console(console: Site, next_: str) -> None:
    fields = {"name": "viewer", "password": ODD.password, "next": next_}
    assert console.reader().post("/login", fields).headers["location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
def test_form_from_another_site_is_refused(console: Site, admin: Reader, headers: dict[str, str]) -> None:
    before = console.call("GET", "/audit?actor=admin").text
    csrf = admin.page("/services/lag-alarm/pause").hidden("csrf")
    fields = {"csrf": csrf, "step": "do", "reason": "x"}
    answer = admin.post("/services/lag-alarm/pause", fields, **headers)
    assert answer.status == 403 and "nothing was done" in answer.words
    assert (
        console.reader().post("/login", {"name": "admin", "password": console.password}, **headers).status
        == 403
    )
    assert console.call("GET", "/audit?actor=admin").text == before


@pytest.mark.parametrize("csrf", ["", "x", "0" * 64, "\u00e9" * 64])
def test_form_without_a_token_is_refused(console: Site, admin: Reader, csrf: str) -> None:
    for path in ("/services/lag-alarm/pause", "/topics/Orders/delete", "/groups/billing/reset", "/logout"):
        answer = admin.post(path, {"csrf": csrf, "step": "do", "reason": "x", "typed": "Orders"})
        assert answer.status == 403, path
    assert "Orders" in console.call("GET", "/cluster/topics").text


def test_form_with_the_token_of_another_session_is_refused(
    console: Site,
    admin: Reader,
    viewer: Reader,
) -> None:
    csrf = viewer.page("/").hidden("csrf")
    assert admin.post("/services/lag-alarm/pause", {"csrf": csrf, "step": "do", "reason": "x"}).status == 403


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}],
    ids=str,
)
def test_another_site_cannot_fill_in_the_form_that_a_login_brings_back(
    console: Site, headers: dict[str, str]
) -> None:
    """A browser sends it without the session's cookie, as if the session had ended."""
    stranger = console.reader()
    typed = {"topic": "Evil", "queues": "1", "perm": "6", "reason": "evil"}
    found = stranger.post("/new/topic", typed | {"step": "do"}, **headers)
    assert found.headers["location"] == "/login?next=%2Fnew%2Ftopic" and "Evil" not in found.text
    waiting = {f"kept.{name}": value for name, value in typed.items()} | {"step": "enter"}
    login = {"name": "admin", "password": console.password}
    found = stranger.post("/new/topic", waiting | login, **headers)
    assert found.headers["location"] == "/login?next=%2Fnew%2Ftopic" and not stranger.cookies


def test_form_that_a_login_brings_back_changes_nothing_by_itself(console: Site) -> None:
    """Neither forged fields of the login page, nor those of another person, confirm a change."""
    before = console.call("GET", "/audit?kind=topic").text
    path, login = "/topics/Orders/delete", {"name": "admin", "password": console.password, "step": "enter"}
    forged = {
        "csrf": "x",
        "stamp": "x",
        "step": "do",
        "typed": "Orders",
        "reason": "evil",
        "password": "secret",
    }
    reader = console.reader()
    back = reader.post(path, {f"kept.{name}": value for name, value in forged.items()} | login)
    assert back.status == 200 and back.hidden("csrf") == csrf_of(reader.cookies["sparrow_session"])
    assert 'name="typed" value=""' in back.text and "secret" not in back.text
    other = console.reader()
    back = other.post(path, {"kept.reason": "evil"} | login | {"name": "viewer", "password": ODD.password})
    sent = {"csrf": back.hidden("csrf"), "stamp": back.hidden("stamp"), "step": "do", "reason": "evil"}
    assert other.post(path, sent | {"typed": "Orders"}).status == 403
    assert (
        console.call("GET", "/audit?kind=topic").text == before
        and "Orders" in console.call("GET", "/cluster/topics").text
    )


@pytest.mark.parametrize("path", ["/me/password", "/new/access-user", "/people/admin/token"])
def test_passwords_do_not_wait_for_a_login(console: Site, path: str) -> None:
    typed = {"old": "s3cret-old", "new": "s3cret-new", "password": "s3cret-own", "label": "ci", "reason": "r"}
    found = console.reader().post(path, typed | {"step": "do"})
    assert found.status == 401 and found.hidden("kept.label") == "ci" and "s3cret" not in found.text


def test_too_large_a_form_does_not_wait_for_a_login(console: Site) -> None:
    found = console.reader().post("/topics/Orders/send", {"body": "x" * (KEPT_CHARS_MAX + 1), "step": "do"})
    assert found.headers["location"] == "/login?next=%2Ftopics%2FOrders%2Fsend"


def test_logins_in_the_place_of_a_form_are_counted(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as found:
        fields = {"kept.topic": "T", "step": "enter", "name": "admin", "password": "wrong"}
        statuses = [found.reader().post("/new/topic", fields).status for _ in range(7)]
    assert statuses[:5] == [401] * 5 and statuses[-1] == 429


def test_unsupported_form_types_are_refused_with_a_message(admin: Reader) -> None:
    origin = {"Origin": f"http://{admin.address}"}
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        found = admin.ask("POST", "/services/lag-alarm/pause", b"{}", origin | {"Content-Type": kind})
        assert found.status == 422
    many = "&".join(f"f{number}=1" for number in range(200)).encode()
    form = origin | {"Content-Type": "application/x-www-form-urlencoded"}
    assert admin.ask("POST", "/login", many, form).status == 422
    assert admin.ask("POST", "/login", b"name=" + b"x" * 70_000, form).status == 413


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9877",
        "",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a@127.0.0.1",
        "[::1",
        "[::1%evil.example]",
        "127.0.0.1/x",
    ],
)
def test_dns_rebinding_is_refused(console: Site, host: str) -> None:
    for path in ("/", "/login", "/static/x/console.js", "/nothing"):
        reader = console.reader()
        reader.cookies = dict(console.admin.cookies)
        connection = HTTPConnection(console.address, timeout=ANSWER_SECONDS)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host)
        connection.putheader("Cookie", f"sparrow_session={reader.cookies['sparrow_session']}")
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status in (400, 421), path
        assert "broker-a" not in text
    assert console.admin.get("/", Host="localhost:9877").status == 200


def test_too_many_logins_are_refused(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1") as found:
        statuses = [found.reader().login("admin", "wrong").status for _ in range(7)]
    assert statuses[:5] == [401] * 5 and statuses[-1] == 429


def test_viewers_cannot_change_anything(console: Site, viewer: Reader) -> None:
    """The API refuses the forms, whatever a page shows."""
    csrf = viewer.page("/").hidden("csrf")
    tries: Iterator[tuple[str, dict[str, str]]] = iter(
        [
            *((f"/services/lag-alarm/{name}", {}) for name in ("pause", "run", "hand-over")),
            ("/new/topic", {"topic": "New", "queues": "4", "perm": "6"}),
            ("/topics/Orders/delete", {"typed": "Orders"}),
            ("/topics/Orders/change", {"queues": "2", "perm": "6"}),
            ("/groups/billing/reset", {"topic": "Orders", "to": "first", "typed": "billing"}),
            ("/dead-letters/billing/resend", {"ids": "X", "rate": "10"}),
        ]
    )
    for path, fields in tries:
        seen = viewer.post(path, fields | {"csrf": csrf, "step": "look"})
        stamp = seen.hidden("stamp") if 'name="stamp"' in seen.text else ""
        sent = fields | {"csrf": csrf, "step": "do", "reason": "x", "stamp": stamp}
        answer = viewer.post(path, sent)
        assert answer.status == 403 and "may not" in answer.words, (path, answer.status, answer.words[-200:])
    assert json.loads(console.call("GET", "/audit?actor=viewer&action=topic.create").text) == []


# Pure


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:1", "localhost"), ("[::1]:9", "::1"), ("127.0.0.1", "127.0.0.1"), ("A.b:1", "a.b"),
     ("a/b", ""), ("a@b", ""), ("", ""), ("a,b", ""), ("a b", "")],
)  # fmt: skip
def test_host_header_is_checked(host: str, name: str) -> None:
    assert host_name(host) == name


def test_hosts_and_origins_of_the_console_are_recognised() -> None:
    place = ConsoleAddress.of("https://MQ.example.com")
    assert place.knows("mq.example.com") and place.knows("10.1.2.3:9877") and place.knows("[::1]:9877")
    assert not place.knows("other.example.com") and not ConsoleAddress.of("").knows("mq.example.com")
    assert place.is_own("https://mq.example.com", None, "127.0.0.1:9877")
    assert place.is_own(None, "same-origin", "127.0.0.1")
    assert not place.is_own(None, None, "127.0.0.1") and not place.is_own("null", None, "127.0.0.1")
    assert not place.is_own("https://mq.example.com", "cross-site", "mq.example.com")
    assert not any(
        ConsoleAddress.of("").knows(one) for one in ("[::1%evil.com]", "[fe80::1%1]:9877", "::1%a")
    )
    assert place.is_secure and not ConsoleAddress.of("http://mq").is_secure


@pytest.mark.parametrize(
    ("url", "origin", "own"),
    [
        ("", "http://127.0.0.1:9877", True),
        ("", "HTTP://127.0.0.1:9877", True),
        ("", "https://127.0.0.1:9877", False),
        ("", "http://127.0.0.1:9877/", False),
        ("", "http://127.0.0.1:9877/x", False),
        ("", "http://127.0.0.1:9877?x", False),
        ("", "http://a@127.0.0.1:9877", False),
        ("", "", False),
        ("https://mq.example.com", "https://mq.example.com", True),
        ("https://mq.example.com", "https://127.0.0.1:9877", True),
        ("https://mq.example.com", "http://mq.example.com", False),
        ("https://mq.example.com", "http://127.0.0.1:9877", False),
        ("https://mq.example.com", "https://mq.example.com/x", False),
    ],
)
def test_origin_is_compared_as_a_whole(url: str, origin: str, own: bool) -> None:
    assert ConsoleAddress.of(url).is_own(origin, None, "127.0.0.1:9877") is own
    assert not ConsoleAddress.of(url).is_own("http://", None, "")


@pytest.mark.parametrize(
    "url",
    ["mq.example.com", "ftp://x", "https://", "https://a/b", "https://a?b", "https://u@a", "https://a#b"],
)
def test_invalid_console_url_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="consoleUrl"):
        ConsoleAddress.of(url)


def test_form_token_belongs_to_one_session() -> None:
    assert is_csrf("a", csrf_of("a")) and not is_csrf("a", csrf_of("b")) and not is_csrf("a", "")


@pytest.mark.parametrize(
    ("text", "path"), [("/a?b=c", "/a?b=c"), ("a", "/"), ("", "/"), ("//a", "/"), ("/" + "x" * 3000, "/")]
)
def test_target_after_login_is_restricted(text: str, path: str) -> None:
    assert inner_path(text) == path


@pytest.mark.parametrize("text", ["' OR 1=1 --", "admin'; DROP TABLE audit; --", "%", "\\", "\x00"])
def test_filters_of_the_audit_log_are_values_and_never_sql(admin: Reader, text: str) -> None:
    found = admin.page(f"/audit?{urlencode({'audit.is.actor': text})}")
    assert "service.run" not in found.part("audit"), "nobody has this name"
    assert "service.run" in admin.page("/audit?audit.is.actor=admin").part("audit"), "the log is still there"


@pytest.mark.parametrize(
    "path",
    [
        "/static/x/../../catalogue.toml",
        "/static/x/..%2f..%2fcatalogue.toml",
        "/static/x/%2e%2e%2fcatalogue.toml",
        "/static/..%2f..%2f/catalogue.toml",
        "/static/x/%00console.css",
        "/static/x//etc/passwd",
        "//static/x/console.css",
        "/groups/..%2f..%2faudit%00",
    ],
)
def test_paths_lead_to_no_other_file(admin: Reader, path: str) -> None:
    found = admin.get(path)
    assert found.status == 404 or path.startswith("/groups/"), found.status
    assert "[menu]" not in found.text and "root:" not in found.text
    assert "default-src 'none'" in found.headers["content-security-policy"]


def test_huge_form_is_refused(admin: Reader) -> None:
    found = admin.post("/preferences", {"next": "x" * (BODY_BYTES_MAX + 1)})
    assert found.status == 413 and "the limit is" in found.words
