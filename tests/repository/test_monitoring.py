"""Metrics, the page about them, the alerts and the dashboard of deploy/ know the same names.

Expressions are read by a tokenizer. `tests/interop/monitoring` has a real Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
PAGE = ROOT / "docs" / "monitoring.md"
SOURCES = [
    path
    for package in ("broker", "nameserver", "proxy", "transport", "httpd", "core")
    for path in (ROOT / "src" / "sparrowmq" / package).rglob("*.py")
] + [ROOT / "src" / "sparrowmq" / "coordinator" / "operated.py"]
METRIC = re.compile(r"\b(?:rocketmq|sparrow)_[a-z_]+[a-z]\b")
RECORDED = ROOT / "tests" / "fixtures" / "metrics" / "apache-5.5.0.txt"
"""What the Prometheus exporter of Apache RocketMQ 5.5.0 gave."""
EXPORTER = ROOT / "tests" / "fixtures" / "metrics" / "rocketmq-exporter.txt"
"""The metrics of Apache's program of that name, from its source."""
NODE_LABELS = {"cluster", "node_type", "node_id", "instance", "job"}
FUNCTIONS = {
    *("sum", "max", "min", "count", "topk", "rate", "increase", "histogram_quantile", "predict_linear"),
    *("by", "and", "or", "unless"),
}
TOKEN = re.compile(
    r"\s*(?:(?P<string>\"[^\"]*\")|(?P<range>\[\d+[smhd]\])|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)|(?P<sign>=~|!=|==|>=|<=|[-+*/<>=(){},]))"
)


def metrics_of_the_source() -> set[str]:
    """Names in calls of `Exposition`'s methods and in tables of them."""
    quoted = re.compile(r'"((?:rocketmq|sparrow)_[a-z_]+)"')
    return {name for path in SOURCES for name in quoted.findall(path.read_text())}


def labels_of_the_page() -> dict[str, set[str]]:
    """Labels by metric, from the table; `the same` repeats the row before."""
    found: dict[str, set[str]] = {}
    last: set[str] = set()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = METRIC.findall(cells[0]) if line.startswith("| `") and len(cells) == 3 else []
        if not names:
            continue
        if cells[1] != "the same":
            last = set(re.findall(r"[a-z_]+", cells[1]))
        found |= dict.fromkeys(names, last)
    return found


def list_of_apache() -> dict[str, str]:
    """The name here of each of RocketMQ's metrics, from the page; empty for those that are not served."""
    rows = re.findall(r"(?m)^\| `(rocketmq_[a-z_]+)` \| (.*) \|$", PAGE.read_text())
    return {name: text.strip("`") if text.startswith("`") else "" for name, text in rows if "|" not in text}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    yield "KEDA", keda()["metadata"]["query"]
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            query = variable["query"]
            if isinstance(query, dict):
                inner = re.fullmatch(r"label_values\((.*), ([a-z_]+)\)", query["query"])
                assert inner is not None
                yield variable["name"], f"max by ({inner[2]}) ({inner[1]})"


def keda() -> dict[str, Any]:
    """The trigger of the page's `ScaledObject`."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (trigger,) = yaml.safe_load(block)["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    return dict(trigger)


def tokens(text: str) -> list[tuple[str, str]]:
    """Kinds and texts of the tokens; fails at what is none."""
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None and match.lastgroup is not None, f"{text[at:]!r} is no token"
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def test_the_page_has_every_metric_and_no_other() -> None:
    assert set(labels_of_the_page()) == metrics_of_the_source()


def test_the_page_says_of_each_metric_of_apache_whether_it_is_served() -> None:
    listed = list_of_apache()
    ours = {name for name in metrics_of_the_source() if name.startswith("rocketmq_")}
    assert {name for name in listed.values() if name} == ours
    assert not {name for name, here in listed.items() if not here} & ours
    recorded = re.findall(r"(?m)^# TYPE (rocketmq_\w+) ", RECORDED.read_text())
    without_unit = {re.sub(r"_milliseconds$|(?<=_size)_bytes$", "", name) for name in recorded}
    assert without_unit <= set(listed)


def test_the_page_says_of_each_metric_of_the_older_exporter_what_to_ask_for_instead() -> None:
    (table,) = re.findall(r"(?m)^\| what \| `rocketmq-exporter` \|.*\n\|.*\n((?:\|.*\n)+)", PAGE.read_text())
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    theirs = [pattern for _, names, _ in rows for pattern in re.findall("`(.*?)`", names)]
    exported = EXPORTER.read_text().split()
    assert not [name for name in exported if sum(fnmatchcase(name, pattern) for pattern in theirs) != 1]
    assert not [pattern for pattern in theirs if not any(fnmatchcase(name, pattern) for name in exported)]
    assert {name for _, _, here in rows for name in METRIC.findall(here)} <= metrics_of_the_source()


def test_openmetrics_keeps_the_names_apart() -> None:
    """There a counter is described without `_total`, and no name may be described twice."""
    names = metrics_of_the_source()
    assert not {name for name in names if name.endswith("_total") and name.removesuffix("_total") in names}


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_expressions_use_what_there_is(where: str, text: str) -> None:
    known, open_ones = labels_of_the_page(), []
    allowed = set(NODE_LABELS) | {"le"}
    found = tokens(text)
    named = [word for kind, word in found if kind == "name"]
    metrics = [re.sub(r"_bucket$", "", word) for word in named if METRIC.fullmatch(word)]
    assert metrics or "up" in named, "it asks for something"
    for metric in metrics:
        assert metric in known, f"{where}: there is no metric {metric}"
        allowed |= known[metric]
    for at, (kind, word) in enumerate(found):
        if kind == "sign" and word in "({":
            open_ones.append(word)
        elif kind == "sign" and word in ")}":
            assert open_ones and open_ones.pop() + word in ("()", "{}"), f"{where}: brackets"
        if kind != "name" or METRIC.fullmatch(word) or word == "up":
            continue
        in_braces = bool(open_ones) and open_ones[-1] == "{"
        after_by = found[at - 1][1] in "(," and "by" in [one for _, one in found[max(0, at - 9) : at]]
        if in_braces or (after_by and word not in FUNCTIONS):
            assert word in allowed, f"{where}: {word} is no label of {metrics}"
        else:
            assert word in FUNCTIONS, f"{where}: {word} is no function"
    assert not open_ones, f"{where}: brackets"
    for metric in metrics:
        if metric.endswith("_total"):
            assert re.search(rf"(?:rate|increase)\({metric}\b[^\[]*\[", text), f"{where}: a counter"


@pytest.mark.parametrize("text", ["sum(sparrow_none)", "sum(sparrow_registered", "avg(sparrow_registered)"])
def test_wrong_expressions_are_found(text: str) -> None:
    with pytest.raises(AssertionError):
        test_expressions_use_what_there_is("here", text)


def test_alerts_say_how_grave_it_is_and_what_to_do() -> None:
    found = alerts()
    assert len({rule["alert"] for rule in found}) == len(found) > 10
    known = labels_of_the_page()
    for rule in found:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        told = rule["annotations"]
        assert set(told) == {"summary", "description"}
        allowed = NODE_LABELS.union(*(known[name] for name in METRIC.findall(rule["expr"]) if name in known))
        used = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(told.values())))
        assert used <= allowed, rule["alert"]


def test_panels_have_a_place_each() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found) > 15
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_prometheus_finds_the_alerts_and_the_port() -> None:
    settings = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert settings["rule_files"] == ["alerts.yml"]
    (job,) = settings["scrape_configs"]
    assert job["job_name"] == "sparrowmq", "an alert asks for it"
    from sparrowmq.core.settings.servers import BrokerSettings

    (target,) = job["static_configs"][0]["targets"]
    assert target == f"127.0.0.1:{BrokerSettings().metrics_prom_exporter_port}"
