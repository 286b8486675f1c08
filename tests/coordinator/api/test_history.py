from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Connection
from tests.coordinator.running import Running

from sparrowmq.coordinator.api import exposition
from sparrowmq.coordinator.api.exposition import exposed
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import QUARTERS, SECONDS, Figure, Grain, Series


def keep(api: Running, grain: Grain, values: dict[Series, float], back: int = 1) -> None:
    """Store values of one step."""
    database = api.coordinator._database
    assert database is not None
    with database.write() as connection:
        known = store.series(connection)
        known |= store.add(connection, known, values.keys() - known.keys(), database.now(connection), 10_000)
        slot = grain.slot(database.now(connection)) - back
        store.put(connection, grain, {known[one]: {slot: value} for one, value in values.items()})


def last(found: dict[str, list[float | None]]) -> list[float]:
    return [value for value in found["values"] if value is not None]


def test_lag_of_a_group_is_returned_with_that_of_its_queues(api: Running) -> None:
    names = ("behind T/a/0", "behind T/a/1", "Behind T/a/2", "behind2 T/a/3")
    values = {Series(Figure.QUEUE_LAG, name): float(place) for place, name in enumerate(names)}
    keep(api, SECONDS, values | {Series(Figure.GROUP_LAG, "behind"): 7.0})
    found = api.get("/cluster/history/groups/behind")
    assert (found["range"], found["step_ms"]) == ("1h", 10_000)
    assert [(one["figure"], one["name"], last(one)) for one in found["series"]] == [
        ("group-lag", "behind", [7.0]),
        ("group-age", "behind", []),
        ("queue-lag", "T/a/0", [0.0]),
        ("queue-lag", "T/a/1", [1.0]),
    ]
    assert {len(one["values"]) for one in found["series"]} == {360}


@pytest.mark.parametrize(("span", "points"), [("1h", 360), ("24h", 1440), ("30d", 2880)])
def test_each_range_has_its_steps_and_unknown_values_are_null(api: Running, span: str, points: int) -> None:
    found = api.get(f"/cluster/history/topics/Nowhere?range={span}")
    assert [one["values"] for one in found["series"]] == [[None] * points] * 2


def test_cluster_history_has_rates_and_the_groups_with_most_lag(api: Running) -> None:
    lags = {Series(Figure.GROUP_LAG, f"g{number}"): number * 1000.0 for number in range(8)}
    keep(api, QUARTERS, lags | {Series(Figure.CLUSTER_IN, ""): 12.5}, back=100)
    found = api.get("/cluster/history?range=30d&worst=3")["series"]
    assert [one["figure"] for one in found[:2]] == ["cluster-in", "cluster-out"]
    assert last(found[0]) == [12.5]
    assert [one["name"] for one in found[2:]] == ["g7", "g6", "g5"]


def test_values_of_the_overview_are_read_once(api: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(api, QUARTERS, {Series(Figure.GROUP_LAG, "late"): 90_000.0, Series(Figure.CLUSTER_IN, ""): 1.0})
    reads, usual = list[int](), store.read

    def read(connection: Connection, grain: Grain, wanted: Collection[int], now_ms: int) -> dict[int, Any]:
        reads.append(len(wanted))
        return usual(connection, grain, wanted, now_ms)

    monkeypatch.setattr(store, "read", read)
    found = api.get("/cluster/history?range=30d")["series"]
    assert len(reads) == 1, "decoding a month of all groups is most of the work"
    assert last(next(one for one in found if one["name"] == "late")) == [90_000.0]


def test_worst_groups_are_selected_by_their_current_lag(
    api: Running,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparrowmq.coordinator.api.history.GROUPS_MAX", 2)
    keep(api, SECONDS, {Series(Figure.GROUP_LAG, f"many{number}"): 1e6 + number for number in range(5)})
    found = api.get("/cluster/history?worst=5")["series"][2:]
    assert [one["name"] for one in found] == ["many4", "many3"]


def test_unknown_service_and_invalid_range_are_refused(api: Running) -> None:
    assert api.call("GET", "/cluster/history/services/nothing")[0] == 404
    assert api.call("GET", "/cluster/history?range=2h")[0] == 422


def test_last_figures_are_exported_to_prometheus(api: Running) -> None:
    named = 'a"group\\'
    keep(
        api,
        SECONDS,
        {
            Series(Figure.GROUP_AGE, named): 42.0,
            Series(Figure.BROKER_DISK, "a"): 75.0,
            Series(Figure.QUEUE_LAG, "g T/a/0"): 1.0,
        },
    )
    headers = {"Authorization": f"Bearer {api.token}"}
    status, text = api.raw("GET", "/api/v1/cluster/metrics", None, headers)
    assert status == 200
    families = {one.name: one for one in text_string_to_metric_families(text.decode())}
    (age,) = (one for one in families["sparrow_group_lag_seconds"].samples if one.labels["group"] == named)
    assert age.value == 42.0
    assert families["sparrow_broker_disk_used_percent"].samples[0].labels == {"broker": "a"}
    assert not any("queue" in name for name in families)
    assert api.raw("GET", "/api/v1/cluster/metrics", None, {})[0] == 401


def test_labels_are_bounded_and_omitted_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "LABELS_MAX", 2)
    text, _ = exposed({Series(Figure.GROUP_LAG, f"g{number}"): 1.0 for number in range(5)})
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert [one.labels["group"] for one in families["sparrow_group_lag_messages"].samples] == ["g0", "g1"]
    assert families["sparrow_figures_left_out"].samples[0].value == 3
