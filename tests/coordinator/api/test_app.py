from __future__ import annotations

import json
import re
from http.client import HTTPConnection

import pytest
from tests.coordinator.running import Running
from tests.support import until_sync

from sparrowmq.coordinator.api.app import BODY_BYTES_MAX

OPEN = {("post", "/api/v1/login"), ("get", "/api/v1/health")}


def described(api: Running) -> dict[str, dict[str, dict[str, str]]]:
    status, body = api.raw("GET", "/openapi.json", None, {})
    assert status == 200
    found = json.loads(body)
    assert found["info"]["title"] == "SparrowMQ coordinator"
    paths: dict[str, dict[str, dict[str, str]]] = found["paths"]
    return paths


def test_every_route_is_described(api: Running) -> None:
    paths = described(api)
    assert len(paths) > 20
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path}"


@pytest.mark.proves("pmq:P1", "pmq:P2", "pmq:P3")
def test_only_two_routes_answer_without_a_token(api: Running) -> None:
    calls = [(method, path) for path, methods in described(api).items() for method in methods]
    assert set(calls) > OPEN
    for method, path in set(calls) - OPEN:
        where = re.sub(r"\{\w+\}", "1", path)
        for headers in ({}, {"Authorization": "Bearer smq_forged"}, {"Authorization": "Basic YTpi"}):
            body = b"{}" if method in ("post", "put", "patch") else None
            status, _ = api.raw(method.upper(), where, body, {"Content-Type": "application/json", **headers})
            assert status == 401, f"{method} {path} {headers}"


@pytest.mark.proves("pmq:P2")
def test_unusual_paths_reach_no_page(api: Running) -> None:
    for path in ("/api/v1/people/.js", "/api/v1/audit?x=.js", "/api/v1/services/cat"):
        assert api.raw("GET", path, None, {})[0] == 401 or path.endswith(".js")
    assert api.raw("GET", "/docs", None, {})[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not json", 422),
        (b"[]", 422),
        (b'{"name": 1, "password": "x"}', 422),
        (b'{"name": "x", "password": "y", "more": 1}', 422),
        (b'{"name": "' + b"x" * 65 + b'", "password": "y"}', 422),
        (b'{"name": "\\ud800", "password": "y"}', 422),
        (b" " * (BODY_BYTES_MAX + 1), 413),
    ],
)
def test_invalid_bodies_are_refused_with_a_message(api: Running, body: bytes, status: int) -> None:
    found, answer = api.raw("POST", "/api/v1/login", body, {"Content-Type": "application/json"})
    assert found == status
    assert json.loads(answer)["error"]


def test_health_needs_no_token(api: Running) -> None:
    status, answer = api.call("GET", "/health", token="")
    assert status == 200
    assert set(answer) == {"version", "schema", "coordinator", "now_ms"}


def test_unknown_path_is_an_error_like_others(api: Running) -> None:
    assert api.call("GET", "/nothing") == (404, {"error": "Not Found"})


def test_path_with_a_trailing_slash_does_not_redirect_elsewhere(api: Running) -> None:
    """The target would come from the caller's Host header."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request("GET", "/api/v1/audit/", headers={"Host": "evil.example"})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Location")) == (404, None)
    finally:
        connection.close()


def test_unknown_method_is_answered_with_the_allowed_ones(api: Running) -> None:
    """With all methods of the path, not only those of its first route; no token is needed."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    try:
        for path, methods in (("people/ann", "DELETE, PATCH"), ("grants", "GET, POST"), ("audit", "GET")):
            connection.request("PROPFIND", f"/api/v1/{path}")
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Allow")) == (405, methods)
            assert json.loads(answer.read()) == {"error": "Method Not Allowed"}
    finally:
        connection.close()


def test_every_status_is_described_with_its_body(api: Running) -> None:
    for path, methods in described(api).items():
        for method, operation in methods.items():
            responses = operation["responses"]
            assert isinstance(responses, dict)
            assert {"422", "503"} <= set(responses)
            assert ("401" in responses) == ("security" in operation or path.endswith("/login"))
            for status, one in responses.items():
                if int(status) >= 400:
                    schema = one["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Problem"}, f"{method} {path} {status}"


def test_unexpected_error_hides_its_details(
    api: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr("sparrowmq.coordinator.users.people.everyone", broken)
    said = {"error": "the coordinator failed on this request; see its log"}
    assert api.call("GET", "/people") == (500, said)
    until_sync(lambda: "the inside" in caplog.text)
