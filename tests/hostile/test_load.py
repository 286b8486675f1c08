"""No request keeps others waiting: each code gets the most hostile thing it accepts while others ping.

Stalls of servers in child processes fail a test by the guard of all tests; here the code is named as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.hostile.catalogue import all_entries, all_servers
from tests.hostile.companions import API, MEMBERS, PROXY
from tests.hostile.coordinator_entries import families
from tests.hostile.entries import entries
from tests.hostile.load import measure
from tests.hostile.size import FULL, SMALL
from tests.hostile.world import NAMES, PLAIN, USERS, World
from tests.pages import ROOT
from tests.stall_guard import BOUND_SECONDS, sure_ms

from sparrowmq.coordinator.groups.members import RIGHTS as MEMBERS_RIGHTS
from sparrowmq.core.stalls import Stall
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.proxy.definition.messages import methods
from sparrowmq.testing import LocalCluster

USER = '{"username":"administrator","password":"12345678"}'
SETTINGS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    USERS: {"authentication_enabled": True, "init_authentication_user": USER},
}

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
"""`./sparrow test long` sends what the table of the page was measured with."""
COMPUTED_BOUND_SECONDS = 0.1
"""Processor time of the loop in one turn, and while 99 of 100 pings wait for their answer. The pages promise
half of it, at the full size and on cores that nothing else uses. The time of others on these cores does not
count, but the same work takes longer beside them: they share caches and the memory's bandwidth. What a loop
waits for itself, such as a disk, has the bound of all tests.
"""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    with all_servers(FULL if LONG else SMALL, tmp_path_factory.mktemp("hostile")) as found:
        yield found


def registered(kind: str) -> set[int]:
    """The request codes a server has handlers for."""
    with LocalCluster(**SETTINGS.get(kind, {})) as cluster:
        running = cluster._servers
        assert running is not None and running._nameserver is not None and running._broker is not None
        if kind == NAMES:
            return set(running._nameserver._handler._dispatcher._handlers)
        parts = running._broker._parts
        assert parts is not None
        return set(parts.handlers)


def codes(kind: str) -> list[int]:
    return [int(entry.code) for entry in entries() if entry.kind == kind]


@pytest.mark.parametrize("kind", [PLAIN, NAMES, USERS])
def test_each_code_that_is_registered_has_an_entry(kind: str) -> None:
    wanted = registered(kind)
    if kind == USERS:
        wanted -= set(codes(PLAIN))
    assert sorted(codes(kind)) == sorted(wanted), "write an entry in tests/hostile/entries.py"


def test_each_request_of_a_coordinator_and_a_proxy_has_an_entry() -> None:
    wanted = {(MEMBERS, RequestCode(code).name) for code in MEMBERS_RIGHTS}
    wanted |= {(API, name) for name in families()}
    wanted |= {(PROXY, method.name) for method in methods()}
    found = [entry.key for entry in all_entries() if entry.kind in (MEMBERS, API, PROXY)]
    assert sorted(found) == sorted(wanted), "write an entry in tests/hostile"


def is_long(stall: Stall) -> bool:
    """Whether the loop's own work took longer than it may."""
    return stall.cpu_ms > 1000 * COMPUTED_BOUND_SECONDS or sure_ms(stall) > 1000 * BOUND_SECONDS


@pytest.mark.timeout(3600 if LONG else 400)
@pytest.mark.stalls(seconds=60, why="the test itself judges stalls, so that it can tell the codes of all")
def test_a_caller_does_not_wait_for_another_callers_query(worlds: dict[str, World]) -> None:
    held = {}
    for found in measure(worlds, all_entries()):
        worst = found.worst
        if worst is not None and is_long(worst):
            held[found.entry.key] = worst.sentence()
        elif found.held > 1000 * COMPUTED_BOUND_SECONDS:
            held[found.entry.key] = f"pings waited for {found.held:.0f} ms of the loop's processor time"
    assert held == {}


def test_the_page_has_a_row_for_each_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    block = re.search(r"<!-- table: stalls -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert block is not None
    rows = {
        (cells[0], cells[2].strip("`"))
        for line in block[1].splitlines()[2:]
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    assert rows == {entry.key for entry in all_entries()}, "run scripts/generate_stalls.py"
