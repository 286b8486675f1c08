"""The alert rules and the dashboard under examples/monitoring ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from tests.pages import ROOT, Page
from tests.spark.metrics.progresses import Q0, RUN, progress, source

from sparrowmq.spark import MetricsListener
from sparrowmq.spark.bodies.bad_rows import BadRowsCount
from sparrowmq.spark.pipelines.common.prometheus import Metrics
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag

FILES = ROOT / "examples" / "monitoring"
RULES = yaml.safe_load((FILES / "spark-alerts.yml").read_text())
DASHBOARD = json.loads((FILES / "spark-dashboard.json").read_text())
FUNCTIONS = frozenset(
    {"sum", "max", "min", "avg", "rate", "increase", "deriv", "time", "topk", "and", "or", "on", "by"}
)
FROM_PROMETHEUS = frozenset({"instance", "job"})


def there() -> dict[str, set[str]]:
    """Every metric that can be scraped, with its labels."""
    listener = MetricsListener()
    state = [_Event(numRowsDroppedByWatermark=0, numRowsTotal=1)]
    times = {"watermark": "2026-01-01T00:00:00.000Z"}
    done = progress(source({Q0: 5}, {Q0: 9}), stateOperators=state, eventTime=times)
    listener.onQueryProgress(_Event(progress=done))
    listener._book.asked(RUN, {Q0: 5}, {Q0: 9}, {Q0: 1.0}, 1.0)
    listener.onQueryStarted(_Event(id="x", runId="other", name="failed"))
    listener.onQueryTerminated(_Event(runId="other", exception="text", errorClassOnException=None))
    listener.bad_rows(BadRowsCount("orders", 0, 10, 1))
    pipelines = Metrics()
    pipelines(Progress("mirror", lag=1, topics=(TopicLag("t", 1, 1.0),)))
    found: dict[str, set[str]] = {}
    registries: list[CollectorRegistry] = [listener.registry, pipelines.registry]
    for registry in registries:
        for family in registry.collect():
            for name in {family.name, *(sample.name for sample in family.samples)}:
                found.setdefault(name, set()).update(*(one.labels for one in family.samples))
            if family.type == "counter":
                found.pop(family.name)  # told as …_total
    return found


class _Event:
    def __init__(self, **values: Any) -> None:
        self.__dict__ |= values


THERE = there()


def faults(expression: str) -> Iterator[str]:
    """What is wrong with a query in PromQL, as far as that can be seen without Prometheus."""
    plain = re.sub(r'"[^"]*"', '""', expression)
    for opening, closing in ("()", "{}", "[]"):
        if plain.count(opening) != plain.count(closing):
            yield f"{opening}{closing} do not match"
    metrics = re.findall(r"\bsparrow_\w+", plain)
    if not metrics:
        yield "no metric"
    yield from (f"no metric {name}" for name in metrics if name not in THERE)
    labels = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", plain)
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", plain):
        labels += re.split(r"\s*,\s*", group.strip())
    known = FROM_PROMETHEUS.union(*(THERE.get(name, set()) for name in metrics))
    yield from (f"no label {name}" for name in labels if name not in known)
    rest = re.sub(r"\[[^\]]*\]|\{[^}]*\}|\bsparrow_\w+|\b(?:by|on)\s*\([^)]*\)", " ", plain)
    words = re.findall(r"[A-Za-z_]\w*", rest)
    yield from (f"no function {word}" for word in words if word not in FUNCTIONS)


def test_the_check_itself() -> None:
    assert list(faults('sum(rate(sparrow_query_input_rows_total{query=~"a.*"}[5m])) by (query) > 1')) == []
    assert list(faults("sparrow_query_nothing > 0")) == ["no metric sparrow_query_nothing"]
    assert list(faults("sparrow_query_faults > 0")) == ["no metric sparrow_query_faults"]
    assert list(faults('sparrow_query_active{name="x"}')) == ["no label name"]
    assert list(faults("sum(sparrow_query_active")) == ["() do not match"]
    assert list(faults("most(sparrow_query_active)")) == ["no function most"]
    assert list(faults("1 > 0")) == ["no metric"]


@pytest.mark.parametrize(
    "rule", [rule for group in RULES["groups"] for rule in group["rules"]], ids=lambda rule: rule["alert"]
)
def test_alert_rules_ask_for_what_there_is(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert list(faults(rule["expr"])) == []
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "5m"))
    metrics = re.findall(r"\bsparrow_\w+", rule["expr"])
    labels = FROM_PROMETHEUS.union(*(THERE[name] for name in metrics))
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert rule["annotations"]["summary"]


def test_names_of_alerts_are_different() -> None:
    names = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_panels_show_what_there_is(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert list(faults(target["expr"])) == []
        metrics = re.findall(r"\bsparrow_\w+", target["expr"])
        labels = set().union(*(THERE[name] for name in metrics))
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
    place = panel["gridPos"]
    assert place["x"] + place["w"] <= 24


def test_the_dashboard_is_one() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    text = json.dumps([panel["targets"] for panel in DASHBOARD["panels"]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == variables
    [query] = [one for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert re.fullmatch(r"label_values\(sparrow_query_active, query\)", query["query"]["query"])


def test_the_page_lists_every_metric() -> None:
    rows = Page(ROOT / "docs" / "spark-monitoring.md").table("| metric |")
    listed = {name.strip("`"): set(re.findall(r"`(\w+)`", labels)) for name, labels, _ in rows}
    created = {name for name in THERE if name.endswith("_created")}
    ours = {name for name in THERE if not name.startswith("sparrow_pipe_")}
    assert listed == {name: THERE[name] for name in ours - created}
