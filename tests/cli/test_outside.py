"""Text from outside is escaped before it reaches the terminal: every command, against a cluster and a
coordinator whose names, reasons, properties, bodies and stacks are full of control characters.
"""

from __future__ import annotations

import ast
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.test_remote_calls import ALL, Call, call, server  # noqa: F401 - fixtures
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.cli.base import common, remote
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, FrameReader, decode, encode

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow
    from tests.coordinator.running import Running

    from sparrowmq.testing import LocalCluster

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\u202e\x7f[red]"
SOURCE = Path(common.__file__).parents[1]
READING = ("audit", "list", "show", "members", "plans", "plan", "roster", "findings", "checks", "grants")
"""Coordinator's commands that print what is there: they have to be seen to print it."""


def assert_shown(outcome: Any, line: str) -> None:
    """That nothing printed steers a terminal; what JSON says is JSON."""
    for text in (outcome.out, outcome.err):
        raw = {char for char in text if not char.isprintable() and char not in "\n\t"}
        assert not raw, f"{line}: {raw!r} in {text!r}"


def test_nothing_is_printed_but_through_one_function() -> None:
    """The next `print` finds itself here: `say`, `say_lines` and `print_json` are the way out."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in ("print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"):
                found.append(path.relative_to(SOURCE).as_posix())
            if name == "Console" and path.name != "sql.py":
                marked = {key.arg: ast.unparse(key.value) for key in node.keywords}
                assert marked.get("markup") == "False", f"{path}: names are no markup"
    assert set(found) == {"base/common.py"}


def hostile(value: Any) -> Any:
    """The answer with control characters in every text that is no word of ours."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("line", sorted(ALL))
def test_what_a_coordinator_tells(
    call: Call,  # noqa: F811
    server: Running,  # noqa: F811
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status, made = server.call("POST", "/tokens", {"label": line, "reason": EVIL})
    assert status == 201, made
    monkeypatch.setenv("SPARROW_TOKEN", made["token"])
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setattr("sparrowmq.cli.coordinator.dynamic_settings.WAIT_SECONDS", 0.0)
    seen = []

    def loads(text: str | bytes) -> Any:
        seen.append(hostile(json.loads(text)))
        return seen[-1]

    monkeypatch.setattr(remote, "json", SimpleNamespace(loads=loads, dumps=json.dumps, dump=json.dump))
    for more in ([], ["--json"]):
        seen.clear()
        outcome = call(line, *more)
        assert_shown(outcome, line)
        if any(seen) and outcome.status == 0 and line.split()[-1] in READING:
            assert "owned" in outcome.out


@contextmanager
def stranger(cluster: LocalCluster, group: str, topic: str) -> Iterator[str]:
    """A member of a group whose client id, properties, expression and stacks are hostile."""
    client = "stranger" + EVIL
    data = {"topic": topic, "subString": "*", "subVersion": 1}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [data],
                "unitMode": False}  # fmt: skip
    beat = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}
    info = {"properties": {"PROP_CONSUME_TYPE": EVIL, EVIL: EVIL}, "subscriptionSet": [], "statusTable": {},
            "mqTable": {f'{{"brokerName":"{"b"}","queueId":0,"topic":"{topic}"}}': {"commitOffset": 0}},
            "jstack": f"at x\n{EVIL}"}  # fmt: skip
    host, _, port = cluster.broker_address.partition(":")
    connection = socket.create_connection((host, int(port)))

    def serve() -> None:
        reader = FrameReader()
        while data := connection.recv(65536):
            for raw in reader.feed(data):
                command = decode(*raw)
                if not command.is_response and not command.is_oneway:
                    body = json.dumps(info).encode()
                    answer = Command(0, command.opaque, FLAG_RESPONSE, remark=EVIL, body=body)
                    connection.sendall(encode(answer))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        connection.sendall(encode(Command(34, 1, body=json.dumps(beat).encode())))
        yield client
    finally:
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        thread.join(10)


LINES = (
    "topic list", "topic route Hostile", "topic status Hostile", "group list --all", "cluster list",
    "group progress hostiles", "group connections hostiles", "group status hostiles --stacks",
    "group policy hostiles", "group status nobody", "hold list", "broker status broker-a --all",
    "message query Hostile the-key", "message get Hostile {id}", "message trace {id}", "trace {id}",
    "dlq list", "dlq show hostiles", "dlq export hostiles",
    "consume Hostile --group hostiles2 --from first --count 2",
    "consume Hostile --group hostiles3 --from first --count 2 --format json",
)  # fmt: skip
WITH_EVIL = {"group connections hostiles", "group status hostiles --stacks", "message query Hostile the-key",
             "message get Hostile {id}", LINES[-1], LINES[-2]}  # fmt: skip


def test_what_a_cluster_tells(sparrow: Sparrow, cluster: LocalCluster) -> None:
    sparrow("topic", "create", "Hostile", "--queues", "1")
    with mq.Producer("senders", namesrv=cluster.namesrv) as producer:
        told = {"note": EVIL, "n" + EVIL: "x"}
        one = mq.Message("Hostile", f"a\n{EVIL}".encode(), tags=EVIL, keys=["the-key", EVIL], properties=told)
        sent = producer.send(one)
        producer.send(one)
    with stranger(cluster, "hostiles", "Hostile") as client:
        until_sync(lambda: sparrow("group", "connections", "hostiles", status=None).status == 0)
        (found,) = sparrow("group", "connections", "hostiles", "--json").values
        assert [one["client"] for one in found["members"]] == [client], "JSON has it as it is"
        for line in LINES:
            for more in ([], ["--json"]):
                if more and line.split()[0] == "consume":
                    continue
                arguments = [*line.format(id=sent.message_id).split(), *more]
                outcome = sparrow(*arguments, status=None)
                assert_shown(outcome, line)
                if line in WITH_EVIL:
                    assert "owned" in outcome.out, line
