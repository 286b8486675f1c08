"""A real Prometheus scrapes our servers: it takes the text, the alerts and every panel of the dashboards."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from tests.interop.apache import MissingToolError
from tests.support import free_port, until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
DEPLOY = Path(__file__).parent.parent.parent / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
PARSED = (0, 3)
"""Exit statuses of `promtool check metrics`: 3 for names that its makers would choose differently."""
WITHOUT_SERIES = {
    "Slaves behind",
    "Dead letters",
    "Timed and delayed messages",
    "Messages lost before they were consumed",
    "Transactions committed and rolled back",
    "Coordinators: database answers",
    "Coordinators: failed runs of services",
    "Managed groups: queues handed over",
    "Managed groups: members",
}
"""Panels that need not have a line in this cluster."""


def tool(name: str) -> str:
    """The path of a program of Prometheus."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is missing; install the package prometheus")
    return found


def promtool(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=PROMETHEUS,
        timeout=60,
    )


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Prometheus with the configuration of `deploy`, which scrapes this address; its URL."""
    settings = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    settings["global"] = {
        "scrape_interval": "200ms",
        "evaluation_interval": "200ms",
        "scrape_timeout": "200ms",
    }
    settings["rule_files"] = [str(PROMETHEUS / "alerts.yml")]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={directory}/prometheus.yml"]
    command += [f"--storage.tsdb.path={directory}/data", f"--web.listen-address={address}"]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            yield f"http://{address}"
        finally:
            running.kill()


def ask(url: str) -> Any:
    """The data of an answer of Prometheus' API; None while it does not listen yet."""
    with suppress(URLError, ConnectionError), urlopen(url, timeout=20) as answer:
        found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]
    return None


def instant(url: str, expression: str) -> list[Any]:
    """The series of an expression now."""
    found = ask(f"{url}/api/v1/query?query={quote(expression)}")
    return [] if found is None else list(found["result"])


def rules(url: str) -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in ask(f"{url}/api/v1/rules")["groups"] for rule in group["rules"]]


def panels() -> Iterator[tuple[str, str]]:
    """Titles and expressions of all dashboards, for all clusters and brokers."""
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield panel["title"], target["expr"].replace("$cluster", ".*").replace("$broker", ".*")


@contextmanager
def working(namesrv: str) -> Iterator[None]:
    """Messages that were sent, consumed, delayed, and some that wait; their clients are connected."""
    with mq.Producer("p", namesrv=namesrv) as producer, mq.PullConsumer("g", namesrv=namesrv) as consumer:
        producer.send_batch([mq.Message("Orders", b"x") for _ in range(100)])
        producer.send(mq.Message("Orders", b"later", delay_level=5))
        consumer.subscribe("Orders")
        assert until_sync(lambda: consumer.poll(1))
        consumer.commit()
        yield


def test_the_alerts_fire_when_they_should() -> None:
    for arguments in (("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    tests = (PROMETHEUS / "alerts_test.yml").read_text()
    assert not [rule["alert"] for group in groups for rule in group["rules"] if rule["alert"] not in tests]


def test_prometheus_takes_what_our_servers_tell(tmp_path: Path) -> None:
    port = free_port()
    with (
        LocalCluster(metrics_exporter_type="PROM", metrics_prom_exporter_port=port) as cluster,
        working(cluster.namesrv),
    ):
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            done = promtool("check", "metrics", stdin=answer.read().decode())
        assert done.returncode in PARSED and "error" not in done.stderr, done.stderr
        with prometheus(tmp_path, f"127.0.0.1:{port}") as url:
            until_sync(lambda: instant(url, "rate(sparrow_stalls_total[5s])"))
            (target,) = ask(f"{url}/api/v1/targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            until_sync(lambda: {rule["health"] for rule in rules(url)} == {"ok"})
            states = {rule["name"]: rule["state"] for rule in rules(url)}
            assert len(states) >= 15 and "firing" not in states.values(), states
            for title, text in panels():
                if title in WITHOUT_SERIES:
                    instant(url, text)
                else:
                    until_sync(partial(instant, url, text))
