"""Requests of all kinds, made from the API's description: each is answered, in words, with a status it has.

`tests/databases` runs the same odd values on PostgreSQL and MariaDB, in the long tier all of it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.coordinator.api.described import (
    Operation,
    Request,
    is_text,
    odd_requests,
    operations,
    requests,
)
from tests.coordinator.running import Running, running
from tests.support import sqlite_url

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import people, tokens
from sparrowmq.coordinator.users.people import PersonUpdate

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
EVERY = 1 if LONG else 31
"""Of the odd requests, one of how many is sent; prime, so that each field meets others."""
ADMIN = "fuzzing"
NAMES = ("fuzzed", "viewer", "operator", "group", "topic", "threads", "*", "lag-alarm", "first")

SEARCHES = (
    "looked' OR '1'='1",
    "looked' OR 1=1 -- ",
    'looked" OR ""="',
    "looked%' OR '%'='",
    "%f%u%z%",
    "looked') OR ('1'='1",
)


class Fuzzed:
    """An API with an admin that is restored whatever the requests do."""

    def __init__(self, api: Running) -> None:
        self.api = api
        self.token = ""
        document = json.loads(api.raw("GET", "/openapi.json", None, {})[1])
        self.operations = list(operations(document))

    def renew(self) -> None:
        """Restore the admin, and get a new token."""
        database = Database(self.api.coordinator.settings.database_url)
        try:
            with database.write() as connection:
                actor, change = Actor("test"), PersonUpdate(role="admin", enabled=True)
                if ADMIN in {one.name for one in people.everyone(connection)}:
                    people.edit(connection, ADMIN, change, actor)
                else:
                    people.add(connection, ADMIN, "no hash", change, actor)
                self.token = tokens.make(connection, ADMIN, "", 3_600_000, actor)[1]
        finally:
            database.close()

    def call(self, method: str, target: str, data: bytes | None = None) -> tuple[int, Any]:
        """Status and answer, as an admin."""
        for _ in range(2):
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
            status, answer = self.api.raw(method, target, data, headers)
            if status not in (401, 403):
                break
            self.renew()
        shown = f"{method} {target[:300]} {(data or b'')[:300]!r}: {status}"
        assert status < 500, f"{shown} {answer[:500]!r}"
        value = json.loads(answer) if answer[:1] in (b"{", b"[", b'"') else answer.decode(errors="replace")
        if status >= 400:
            assert list(value) == ["error"], shown
            assert value["error"], shown
        return status, value

    def send(self, request: Request) -> None:
        """Send it and check what must hold for any answer."""
        operation = request.operation
        status, _ = self.call(operation.method, request.target, request.data)
        assert status in operation.statuses, f"{operation}: {status}"


@pytest.fixture(scope="module")
def api(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate API: users and tokens of other tests would not survive."""
    path = tmp_path_factory.mktemp("described") / "coordinator.db"
    shutil.copy(migrated, path)
    with running(database_url=sqlite_url(path)) as found:
        yield found


@pytest.fixture(scope="module")
def fuzzed(api: Running) -> Fuzzed:
    return Fuzzed(api)


@pytest.mark.proves("pmq:P4")
def test_odd_values_in_every_field_are_refused_or_stored_unchanged(fuzzed: Fuzzed) -> None:
    sent: set[str] = set()
    every = itertools.chain.from_iterable(odd_requests(one, NAMES) for one in fuzzed.operations)
    for request in itertools.islice(every, 0, None, EVERY):
        sent.add(str(request.operation))
        fuzzed.send(request)
    assert len(sent) > 20
    assert fuzzed.call("GET", "/api/v1/health")[0] == 200
    assert fuzzed.call("GET", "/api/v1/audit?count=1")[1], "the audit log is still there"


def hits(answer: Any) -> Any:
    """What a search found: its list, rows of a CSV file after the first, or all but counts, faults and the
    groups that may read the topic.
    """
    if isinstance(answer, str):
        return answer.splitlines()[1:]
    if isinstance(answer, dict):
        return [
            value for name, value in answer.items() if name != "groups" and isinstance(value, list) and value
        ]
    return answer


@pytest.mark.proves("pmq:P4")
def test_search_fields_of_all_routes_are_values(fuzzed: Fuzzed) -> None:
    """A quote in a search finds nothing: neither everything nor an error."""
    count = 0
    for operation, name in searches(fuzzed):
        inside = dict.fromkeys(operation.inside, "fuzzed")
        for evil in SEARCHES:
            status, answer = fuzzed.call("GET", Request(operation, inside, {name: evil}).target)
            assert status in (422, 404) or not hits(answer), f"{operation} {name}={evil}: {answer}"
            count += 1
    assert count > 20


def searches(fuzzed: Fuzzed) -> Iterator[tuple[Operation, str]]:
    """Text fields in the queries of read-only routes."""
    for operation in fuzzed.operations:
        if operation.method == "GET":
            yield from ((operation, name) for name, part in operation.query.items() if is_text(part))


@settings(
    max_examples=2000 if LONG else 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_every_request_the_description_allows_is_answered(fuzzed: Fuzzed, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(fuzzed.operations))
    fuzzed.send(data.draw(requests(operation, NAMES)))
