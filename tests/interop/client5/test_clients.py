"""Every case with every client before every peer; see `cases`.

With `SPARROW_RECORD_CLIENTS=1` what they come to is recorded for the table in docs/clients-5x.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import Final

import pytest
from tests.conftest import LONG
from tests.interop.apache import ApacheCluster, MissingToolError
from tests.interop.client5.cases import CASES, Case, Stage
from tests.interop.client5.gaps import gap_of
from tests.interop.client5.peers import PEERS, Peer, apache_proxy, ours, proxy_before_apache
from tests.interop.client5.results import WORKS, Results, merged, read, write
from tests.interop.grpc_clients import KINDS, ClientKind, GrpcClient

pytestmark = pytest.mark.interop

RECORDS: Final = os.environ.get("SPARROW_RECORD_CLIENTS") == "1"


@pytest.fixture(scope="module")
def peers(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Peer]]:
    """Peers by name, started when first needed."""

    def mixed() -> AbstractContextManager[Peer]:
        cluster: ApacheCluster = request.getfixturevalue("apache")
        return proxy_before_apache(cluster)

    start = {"ours": ours, "mixed": mixed, "apache": apache_proxy}
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(start[name]()))


@pytest.fixture(scope="module")
def clients() -> Iterator[Callable[[ClientKind, str], GrpcClient]]:
    """A process for each client and peer."""
    with ExitStack() as stack:
        yield cache(lambda kind, peer: stack.enter_context(GrpcClient(kind)))


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    found: Results = {}
    yield found
    if RECORDS:
        write(merged(read(), found))


def runs(case: Case, kind: ClientKind, peer: str) -> bool:
    """Whether it is part of every run; the rest takes the long tier."""
    often = peer == "ours" or (peer == "mixed" and kind.name == "python")
    return LONG or RECORDS or (often and not case.slow and not kind.compiled)


PLAN: Final = [
    pytest.param(case, kind, peer, id=f"{peer}-{kind.name}-{case.name}")
    for peer in PEERS
    for kind in KINDS
    for case in CASES
    if case.name not in kind.cannot and runs(case, kind, peer)
]


@pytest.mark.parametrize(("case", "kind", "peer"), PLAN)
def test_case(
    request: pytest.FixtureRequest,
    case: Case,
    kind: ClientKind,
    peer: str,
    peers: Callable[[str], Peer],
    clients: Callable[[ClientKind, str], GrpcClient],
    results: Results,
) -> None:
    gap = gap_of(kind.name, case.name, peer)
    if gap is not None:
        request.applymarker(pytest.mark.xfail(reason=gap, strict=True))
    cells = results.setdefault(kind.name, {}).setdefault(case.name, {})
    topic = f"{case.name}_{kind.name}_{peer}".replace("-", "_")
    try:
        client = clients(kind, peer)
    except MissingToolError as error:
        pytest.skip(f"the {kind.language} client cannot be installed: {error}")
    stage = Stage(client, peers(peer), topic)
    cells[peer] = gap or "failed"
    case.run(stage)
    cells[peer] = WORKS
