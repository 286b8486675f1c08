"""Records what RocketMQ's clients and Apache's proxy say to each other, as fixtures of `tests/proxy`.

    python -m tests.interop.client5.record_exchanges [CLIENT …]

Each client runs some of the cases through a relay; that they worked is recorded as by `test_clients`. A
fixture has a line of JSON for each topic that is made, with a group of its name, and for each call, as they
ended; messages are protobuf in base64.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

from tests.interop.client5.cases import CASES, Case, Stage
from tests.interop.client5.gaps import gap_of
from tests.interop.client5.peers import Peer, apache_proxy
from tests.interop.client5.relay import Exchange, Relay
from tests.interop.client5.results import WORKS, Results, merged, read, write
from tests.interop.grpc_clients import KINDS, ClientKind, GrpcClient
from tests.pages import ROOT

from sparrowmq.proxy.definition.messages import v2

FIXTURES: Final = ROOT / "tests" / "fixtures" / "grpc"
RECORDED: Final = (
    "simple",
    "hidden",
    "push",
    "fifo-push",
    "filters",
    "delay",
    "recall",
    "transactions",
    "wrong-type",
    "unknown-topic",
    "forged-handle",
)


def of_no_machine(message: bytes) -> bytes:
    """A telemetry command without what the client says of the machine that it runs on."""
    command = v2.TelemetryCommand.FromString(message)
    if not command.settings.HasField("user_agent"):
        return message
    command.settings.user_agent.platform, command.settings.user_agent.hostname = "Linux", "host"
    plain: bytes = command.SerializeToString()
    return plain


def text(case: Case, exchange: Exchange) -> str:
    """A line of a fixture."""

    def encoded(messages: Sequence[bytes]) -> list[str]:
        if exchange.method == "Telemetry":
            messages = [of_no_machine(one) for one in messages]
        return [base64.b64encode(one).decode() for one in messages]

    line: dict[str, Any] = {
        "case": case.name,
        "method": exchange.method,
        "metadata": exchange.metadata,
        "requests": encoded(exchange.requests),
        "responses": encoded(exchange.responses),
    }
    return json.dumps(line | ({} if exchange.status == "OK" else {"status": exchange.status}))


def record(kind: ClientKind, peer: Peer) -> None:
    """Run the cases with one client and write its fixture."""
    origin = f"{kind.package} {kind.version} with Apache's proxy 5.5.0 in local mode"
    lines = [json.dumps({"origin": origin})]
    worked: Results = {kind.name: {}}
    for case in CASES:
        if case.name not in RECORDED or case.name in kind.cannot:
            continue
        # A process and a relay for each case: nothing of another case is in it.
        with Relay(peer.endpoints) as relay:
            with GrpcClient(kind) as client:
                topic = f"{case.name}_{kind.name}".replace("-", "_")
                stage = Stage(client, replace(peer, endpoints=relay.address), topic)
                gap = gap_of(kind.name, case.name, peer.name)
                with suppress(AssertionError) if gap else nullcontext():
                    case.run(stage)
            lines += [json.dumps({"case": case.name, "create": one}) for one in stage.created]
            lines += [text(case, exchange) for exchange in relay.take()]
        worked[kind.name][case.name] = {peer.name: gap or WORKS}
        print(kind.name, case.name, flush=True)
    write(merged(read(), worked))
    FIXTURES.mkdir(parents=True, exist_ok=True)
    (FIXTURES / f"{kind.name}.jsonl").write_text("\n".join(lines) + "\n")


def main(names: Sequence[str]) -> None:
    """The command: all clients, or those named."""
    with apache_proxy() as peer:
        for kind in KINDS:
            if not names or kind.name in names:
                record(kind, peer)


if __name__ == "__main__":
    main(sys.argv[1:])
