"""History for charts: values for the series that the service created, waves with a gap."""

from __future__ import annotations

import json
import math

from tests.console.site import Site
from tests.support import until_sync

from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import GRAINS, Figure, Grain, Series

HEIGHTS = {
    Figure.GROUP_AGE: 300.0, Figure.BROKER_DISK: 60.0, Figure.BROKER_LOG: 5e9, Figure.SERVICE_TOOK: 0.4,
}  # fmt: skip


def fill(site: Site, group: str, topic: str) -> None:
    """Run the service until it knows the group and the topic, then write a history for everything."""
    database = site.coordinator._database
    assert database is not None

    def begun() -> dict[Series, int] | None:
        assert (
            site.call("POST", "/services/history/run", json.dumps({"reason": "a past"}).encode()).status
            == 200
        )
        with database.read() as connection:
            found = store.series(connection)
        wanted = {Series(Figure.GROUP_LAG, group), Series(Figure.TOPIC_IN, topic)}
        return found if wanted <= found.keys() else None

    known = until_sync(begun)
    with database.write() as connection:
        now = database.now(connection)
        for grain in GRAINS:
            store.put(connection, grain, {number: _wave(grain, one, now) for one, number in known.items()})


def _wave(grain: Grain, one: Series, now: int) -> dict[int, float]:
    count, last = grain.keep_ms // grain.step_ms, grain.slot(now)
    height, shift = HEIGHTS.get(one.figure, 1000.0), len(one.name) % 7 + len(one.figure.value)
    return {
        last - count + place: height * (1.2 + math.sin(place / count * 14 + shift)) / 2.2
        for place in range(count)
        if not 0.4 < place / count < 0.45
    }
