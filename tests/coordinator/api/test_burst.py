"""Many changes by several users at once: each has its audit entry, and each entry the state before the
change."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import pairwise
from typing import Any

from tests.conftest import LONG
from tests.coordinator.running import Running

CHANGES = 10_000 if LONG else 200
CALLERS = 8


def changed(api: Running, first: int) -> list[int]:
    """Make every eighth change over one connection; returns the statuses."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
    statuses = []
    try:
        for number in range(first, CHANGES, CALLERS):
            body = json.dumps({"messages": number, "age_ms": 0, "reason": "burst"})
            connection.request("PUT", "/api/v1/limits/burst", body, headers)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
    finally:
        connection.close()
    return statuses


def test_burst_of_audit_entries_is_stored_completely_and_in_order(api: Running) -> None:
    with ThreadPoolExecutor(CALLERS) as threads:
        answers = [
            status for part in threads.map(lambda n: changed(api, n), range(CALLERS)) for status in part
        ]
    assert answers == [200] * CHANGES
    entries: list[Any] = []
    path = "/audit?kind=group&object=burst&action=limit&count=500"
    while page := api.get(path + (f"&before_id={entries[-1]['id']}" if entries else "")):
        entries += page
    assert {one["after"]["messages"] for one in entries} == set(range(CHANGES))
    assert len(entries) == CHANGES
    assert all(later["before"] == earlier["after"] for later, earlier in pairwise(entries))
    assert entries[-1]["before"] is None
    assert api.call("DELETE", "/limits/burst")[0] == 200
