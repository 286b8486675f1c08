"""The tests of requests of all kinds, on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.coordinator.api.test_described import (
    LONG,
    fuzzed,  # noqa: F401
    test_odd_values_in_every_field_are_refused_or_stored_unchanged,  # noqa: F401
)
from tests.coordinator.running import Running, running
from tests.databases.servers import Server

if LONG:
    from tests.coordinator.api.test_described import (
        test_every_request_the_description_allows_is_answered,  # noqa: F401
    )


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def api(request: pytest.FixtureRequest) -> Iterator[Running]:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    with running(database_url=server.make()) as found:
        yield found
