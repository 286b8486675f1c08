"""Callers of a coordinator and a proxy that read no answer: the memory of these servers has a bound, too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

import pytest
from tests.hostile.companions import API, MEMBERS, PROXY, ApiWorld, Companion, companions, new_proxy
from tests.hostile.coordinator_entries import LAST, families, joins, leaves, reports, requests
from tests.hostile.proxy_entries import REQUESTS
from tests.hostile.size import Size
from tests.hostile.wire import Ask
from tests.hostile.world import World
from tests.memory.client import LIMIT, most
from tests.proxy.http2.rig import H2Peer

from sparrowmq.coordinator.api.shared import HASHES_AT_ONCE
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import request_name
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.proxy.definition.messages import SERVICE
from sparrowmq.proxy.http2 import frames, grpc

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(300),
    pytest.mark.stalls(seconds=60, why="thousands of large requests at once"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RssAnon is Linux's"),
]

CLIENTS, REQUESTS_OF_ONE = 60, 50
API_CLIENTS = 20
"""Fewer, because there are many operations: one after the other, each connection has its answer made."""
HASHES = HASHES_AT_ONCE * 65_536 * 1024
"""What a coordinator needs for hashes of passwords, beside everything else."""
SIZE = Size("memory", 1 << 20, 1000, 1000, 10_000, 4, 4096, 300, 50)
MEMBER_REQUESTS: dict[int, Callable[[World], list[Ask]]] = {
    Code.JOIN_MANAGED_GROUP: joins,
    Code.REPORT_MANAGED_MEMBER: reports,
    Code.LEAVE_MANAGED_GROUP: leaves,
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    with companions(SIZE, tmp_path_factory.mktemp("memory")) as found:
        yield found


def reached(world: World, asked: bytes, count: int = CLIENTS) -> int:
    """The most memory while many clients ask and do not read."""
    with closing(world.line()) as other:
        return most(world.address, world.pid, other.ping, asked, count)


@pytest.mark.parametrize("code", MEMBER_REQUESTS, ids=request_name)
def test_no_request_of_members_fills_a_coordinators_memory(worlds: dict[str, World], code: int) -> None:
    world = worlds[MEMBERS]
    some = islice(cycle(MEMBER_REQUESTS[code](world)), REQUESTS_OF_ONE)
    asked = b"".join(
        encode(Command(code, number, ext=dict(ask.ext), body=ask.body)) for number, ask in enumerate(some)
    )
    assert reached(world, asked) < LIMIT


def test_no_request_of_the_api_fills_a_coordinators_memory(worlds: dict[str, World]) -> None:
    world = worlds[API]
    assert isinstance(world, ApiWorld)
    found = {}
    for name, operations in families().items():
        for operation in operations:
            if name.strip("/") not in LAST:
                asked = http(next(requests(world, operation))) * REQUESTS_OF_ONE
                found[str(operation)] = reached(world, asked, API_CLIENTS)
    assert {name: size for name, size in found.items() if size >= LIMIT + HASHES} == {}


def http(ask: Ask) -> bytes:
    """A request of the API."""
    head = (
        f"{ask.ext['method']} {ask.ext['target']} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {ask.ext['token']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(ask.body)}\r\n\r\n"
    )
    return head.encode() + ask.body


@pytest.mark.parametrize("method", REQUESTS)
def test_no_request_of_a_proxy_fills_its_memory(
    worlds: dict[str, World], method: str, tmp_path: Path
) -> None:
    """Each method has a proxy of its own: receives of the one before still wait at the brokers."""
    shared = worlds[PROXY]
    assert isinstance(shared, Companion)
    with new_proxy(shared.size, shared.cluster, tmp_path) as world:
        made = [request.SerializeToString() for request in REQUESTS[method][1](world)]
        assert reached(world, calls(method, islice(cycle(made), REQUESTS_OF_ONE))) < LIMIT


def calls(method: str, bodies: Iterator[bytes]) -> bytes:
    """A connection's calls: a large window, and no frame of a request that is larger than the server's."""
    peer = H2Peer(cast("Any", None), cast("Any", None))
    parts = [frames.PREFACE, frames.settings_frame({frames.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})]
    parts.append(frames.window_frame(0, frames.WINDOW_MAX - frames.WINDOW_USUAL))
    for number, body in enumerate(bodies):
        stream, data = 2 * number + 1, grpc.prefixed(body)
        parts.append(peer.headers(stream, f"/{SERVICE}/{method}", x_mq_client_id="deaf"))
        for at in range(0, len(data), frames.FRAME_BYTES_USUAL):
            piece = data[at : at + frames.FRAME_BYTES_USUAL]
            ends = frames.END_STREAM if at + len(piece) == len(data) else 0
            parts.append(frames.frame(frames.DATA, ends, stream, piece))
    return b"".join(parts)
