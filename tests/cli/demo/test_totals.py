"""Folding groups of micro-batches: means, ranks, replays."""

from __future__ import annotations

import json

from sparrowmq.cli.demo.totals import FULL_ROWS, FlightTally, FlightTotals, Group, describe, groups


def group(
    origin: str, dest: str, hour: int, flights: int, departed: int, delay: int, airline: str = "A"
) -> Group:
    return Group(origin, dest, f"{dest} airport", airline, hour, flights, departed, delay)


def test_tally() -> None:
    tally = FlightTally()
    assert tally.mean_delay == 0.0
    tally.add(group("EWR", "X", 5, 10, 8, 80))
    tally.add(group("EWR", "X", 6, 2, 2, -30))
    assert (tally.flights, tally.departed, tally.cancelled, tally.mean_delay) == (12, 10, 2, 5.0)


def test_by_origin_and_hour() -> None:
    totals = FlightTotals()
    totals.replace(0, [group("LGA", "X", 7, 1, 1, 5), group("EWR", "X", 9, 2, 2, 10)])
    totals.replace(1, [group("EWR", "Y", 6, 3, 3, 3), group("EWR", "Z", 9, 1, 1, 20)])
    assert list(totals.by_origin()) == ["EWR", "LGA"]
    assert totals.by_origin()["EWR"] == FlightTally(6, 6, 33)
    hours = totals.by_hour()
    assert list(hours["EWR"]) == [6, 9]
    assert hours["EWR"][9].mean_delay == 10.0
    assert (totals.flights, totals.batches) == (7, 2)


def test_a_batch_that_runs_again_counts_once() -> None:
    totals = FlightTotals()
    totals.replace(0, [group("EWR", "X", 5, 10, 10, 50)])
    totals.replace(0, [group("EWR", "X", 5, 10, 10, 50)])
    totals.replace(1, [])
    assert (totals.flights, totals.batches) == (10, 1)


def test_worst_routes() -> None:
    totals = FlightTotals()
    totals.replace(0, [group("EWR", "B", 5, 10, 10, 100, "one"), group("EWR", "A", 5, 10, 10, 100, "one")])
    totals.replace(1, [group("EWR", "B", 6, 20, 20, 200, "two"), group("JFK", "C", 6, 5, 5, 500, "x")])
    routes = totals.worst_routes()
    assert [(route.origin, route.dest) for route in routes] == [("JFK", "C"), ("EWR", "A"), ("EWR", "B")]
    assert routes[2].airline == "two"
    assert routes[2].dest_name == "B airport"
    assert routes[0].tally.mean_delay == 100.0
    assert len(totals.worst_routes(2)) == 2


def test_rare_routes_are_not_ranked() -> None:
    totals = FlightTotals()
    totals.replace(
        0,
        [group("EWR", "Often", 5, FULL_ROWS - 99, FULL_ROWS - 99, 1), group("EWR", "Rare", 5, 99, 99, 9999)],
    )
    assert [route.dest for route in totals.worst_routes()] == ["Often"]


def test_nothing_yet() -> None:
    totals = FlightTotals()
    assert (totals.flights, totals.batches, totals.by_origin(), totals.worst_routes()) == (0, 0, {}, [])
    assert totals.summaries(0) == []


def test_summaries() -> None:
    totals = FlightTotals()
    totals.replace(3, [group("EWR", "X", 5, 1000, 990, 12870), group("JFK", "X", 5, 2, 2, -5)])
    (origin, text), (other, _) = totals.summaries(3)
    assert (origin, other) == ("EWR", "JFK")
    assert json.loads(text) == {
        "batch": 3, "origin": "EWR", "flights": 1000, "cancelled": 10, "mean_delay": 13.0
    }  # fmt: skip
    assert describe(text) == "batch 3: EWR 1,000 flights, 10 cancelled, +13.0 min on average"


def test_rows_become_groups() -> None:
    row = ("EWR", "X", "X airport", "A", 5, 3, 2, 1)
    assert groups([row]) == [group("EWR", "X", 5, 3, 2, 1)]
