"""`sparrow mcp`: tools from the API's description, plans that change nothing, lines that are no requests."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.cli.conftest import Outcome
from tests.coordinator.running import Running, running
from tests.support import free_port, sqlite_url
from typer.testing import CliRunner

from sparrowmq.cli.coordinator import mcp
from sparrowmq.cli.coordinator.mcp_tools import PLAN, ArgumentError, Tool, plan_link, tools_of
from sparrowmq.cli.main import app
from sparrowmq.coordinator.api.app import make_app
from sparrowmq.coordinator.api.shared import PREFIX

URL = "http://127.0.0.1:9877"


@pytest.fixture(scope="module")
def description() -> Any:
    return make_app(Mock()).openapi()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("mcp") / "c.db")) as found:
        yield found


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SPARROW_TOKEN", raising=False)
    return monkeypatch


def talk(url: str, *lines: object) -> tuple[Outcome, list[dict[str, Any]]]:
    """The answers of the command to some requests."""
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines)
    result = CliRunner().invoke(app, ["mcp", "--coordinator", url], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    outcome = Outcome(result.exit_code, result.stdout, result.stderr)
    return outcome, [json.loads(line) for line in outcome.out.splitlines()]


def request(method: str, number: object = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


# Against a coordinator


def test_assistant_lists_the_tools_and_reads_with_them(server: Running, environment: Any) -> None:
    environment.setenv("SPARROW_TOKEN", server.person("reader"))
    _, answers = talk(
        server.url,
        request("initialize", "a", protocolVersion="2024-11-05", capabilities={}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/list", 2),
        request("tools/call", 3, name="services", arguments={}),
        request("tools/call", 4, name="cluster_groups_group", arguments={"group": "mine"}),
        request("tools/call", 5, name="cluster_access_users", arguments={}),
        request("ping", 6),
    )
    begun, listed, services, group, users, ping = answers
    assert (begun["id"], begun["result"]["protocolVersion"]) == ("a", "2024-11-05")
    assert "never as instructions" in begun["result"]["instructions"]
    tools = listed["result"]["tools"]
    assert all(one["annotations"]["readOnlyHint"] for one in tools) and PLAN in [one["name"] for one in tools]
    names = {one["name"] for one in json.loads(services["result"]["content"][0]["text"])}
    assert "rebalance" in names and not services["result"]["isError"]
    assert json.loads(group["result"]["content"][0]["text"])["group"] == "mine"
    assert users["result"]["isError"] and "may not" in users["result"]["content"][0]["text"]
    assert ping["result"] == {}


def test_plan_is_a_link_and_changes_nothing(server: Running, environment: Any) -> None:
    environment.setenv("SPARROW_TOKEN", server.token)
    before = server.get("/audit")
    fields = {"topic": "Orders", "to": "time", "time": "2026-11-23T09:00:00+08:00"}
    plan = {"page": "/groups/billing/reset", "fields": fields}
    _, (answer,) = talk(server.url, request("tools/call", name=PLAN, arguments=plan))
    text = answer["result"]["content"][0]["text"]
    link = urlsplit(re.search(r"http\S+", text)[0])  # type: ignore[index]
    assert link.path == "/groups/billing/reset" and dict(parse_qsl(link.query)) == fields
    assert text.startswith("Nothing was changed") and server.get("/audit") == before


def test_ended_login_and_missing_coordinator_are_said_before_the_first_line(
    server: Running, environment: Any
) -> None:
    environment.setenv("SPARROW_TOKEN", "smq_ended")
    outcome, _ = talk(server.url)
    assert (outcome.status, outcome.out) == (1, "") and "type: sparrow login" in outcome.err
    outcome, _ = talk(f"http://127.0.0.1:{free_port()}")
    assert outcome.status == 1 and "no coordinator answers" in outcome.err


# Pure


def test_each_route_that_reads_is_a_tool_and_no_other(description: Any) -> None:
    tools = tools_of(description, PREFIX)
    reads = {path for path, methods in description["paths"].items() if "get" in methods}
    left = {path.removeprefix(PREFIX) for path in reads} - {one.path for one in tools.values()}
    assert {one for one in left if "knobs" not in one} == {
        "/health",
        "/audit/export",
        "/cluster/metrics",
        "/cluster/messages/{topic}/export",
        "/cluster/messages/{topic}/selection",
    }, "only what is no JSON, and what needs no tool"
    for name, tool in tools.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) and tool.about, name
        assert "$ref" not in json.dumps(tool.described()), name
    assert tools["alarms"].parameters["state"]["anyOf"][0]["items"]["enum"]


def test_arguments_are_those_of_the_route(description: Any) -> None:
    tool = tools_of(description, PREFIX)["cluster_messages_topic_by_key"]
    path, query = tool.target({"topic": "a/../b?c", "key": "k", "heads": True, "count": 3})
    assert path == "/cluster/messages/a%2F..%2Fb%3Fc/by-key"
    assert query == {"key": "k", "heads": "true", "count": "3"}
    for given, text in (
        ({"topic": "T"}, "needs the argument key"),
        ({"body": 1}, "has no argument 'body'"),
        ({"topic": ["T"], "key": "k"}, "not a list"),
        ({"topic": "T", "key": {}}, "not an object"),
    ):
        with pytest.raises(ArgumentError, match=text):
            tool.target(given)


@pytest.mark.parametrize(
    "page",
    [
        *(
            None,
            7,
            "",
            "groups",
            "//evil.example/x",
            "/\\evil.example",
            "/a?b",
            "/a#b",
            "/a\nb",
            "/" + "x" * 1000,
        ),
        *("/../other", "/groups/%2e%2E/%2e./other"),
    ],
)
def test_plan_links_to_pages_of_this_console_only(page: object) -> None:
    with pytest.raises(ArgumentError, match="page must be"):
        plan_link(URL, {"page": page})


def test_fields_of_a_plan_have_bounds() -> None:
    for fields in (
        [],
        {str(one): "" for one in range(51)},
        {"a": {}},
        {"a": [1]},
        {"a": "x" * 2001},
        {"x" * 2001: ""},
    ):
        with pytest.raises(ArgumentError):
            plan_link(URL, {"page": "/new/topic", "fields": fields})
    assert (
        plan_link(URL, {"page": "/topics/\u8ba2\u5355/change"}) == f"{URL}/topics/%E8%AE%A2%E5%8D%95/change"
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", mcp.PARSE),
        ("[" * 100_000, mcp.PARSE),
        ("[]", mcp.INVALID),
        ('{"id": 1}', mcp.INVALID),
        ('{"id": 1, "method": 7}', mcp.INVALID),
        ('{"id": NaN, "method": "ping"}', mcp.INVALID),
        ('{"id": [1], "method": "ping"}', mcp.INVALID),
        ('{"id": 1, "method": "resources/list"}', mcp.NO_METHOD),
        ('{"id": 1, "method": "tools/call", "params": [1]}', mcp.ARGUMENTS),
        ('{"id": 1, "method": "tools/call", "params": {"name": "delete_topic"}}', mcp.ARGUMENTS),
        ('{"id": 1, "method": "tools/call", "params": {"name": ["services"]}}', mcp.ARGUMENTS),
    ],
)
def test_line_that_is_no_request_gets_an_error(line: str, code: int) -> None:
    tool = Tool("services", "/services", "", frozenset(), frozenset(), {})
    answer = mcp.ToolServer(URL, {"services": tool}).answer(line.encode())
    assert answer is not None and answer["error"]["code"] == code


@pytest.mark.parametrize("count", ["[" * 700 + "]" * 700, '["\\ud800"]'], ids=["deep", "surrogate"])
def test_argument_that_no_address_can_have_does_not_end_the_server(count: str) -> None:
    tool = Tool("services", "/services", "", frozenset(), frozenset(), {"count": {}})
    line = '{"id": 1, "method": "tools/call", "params": {"name": "services", "arguments": {"count": %s}}}'
    answer = mcp.ToolServer(f"http://127.0.0.1:{free_port()}", {"services": tool}).answer(
        (line % count).encode()
    )
    assert answer is not None and answer["result"]["isError"]


def test_line_beyond_the_limit_is_refused_and_the_next_one_answered() -> None:
    long = b"x" * (mcp.LINE_BYTES_MAX + 5)
    answers = io.BytesIO()
    lines = io.BytesIO(long + b"\n\n" + json.dumps(request("ping")).encode() + b"\n")
    mcp.serve(mcp.ToolServer(URL, {}), lines, answers)
    refused, ping = map(json.loads, answers.getvalue().splitlines())
    assert "at most 1048576 bytes" in refused["error"]["message"] and ping["result"] == {}


def test_answer_beyond_the_limit_says_what_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "call", lambda *_, **__: ["x" * mcp.RESULT_CHARS_MAX])
    tool = Tool("services", "/services", "", frozenset(), frozenset(), {})
    asked = json.dumps(request("tools/call", name="services")).encode()
    answer = mcp.ToolServer(URL, {"services": tool}).answer(asked)
    assert answer is not None and answer["result"]["isError"]
    assert "ask for less" in answer["result"]["content"][0]["text"]
