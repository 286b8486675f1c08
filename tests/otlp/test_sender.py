"""Metrics that a collector gets: a gRPC server in the test's own process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics.export import MetricExportResult
from tests.support import about, free_port, run, sqlite_url, until, until_sync

import sparrowmq as mq
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.figures.exposition import Exposition, Operated, Starting, labels
from sparrowmq.core.settings.servers import (
    BrokerSettings,
    CoordinatorSettings,
    NameServerSettings,
    ProxySettings,
)
from sparrowmq.core.settings.shared_rows import collector_url
from sparrowmq.otlp.sender import CollectorTarget, MetricsSender
from sparrowmq.runtime import operators
from sparrowmq.runtime.coordinator import serve_coordinator
from sparrowmq.runtime.proxy import serve_proxy
from sparrowmq.runtime.servers import LocalServers
from sparrowmq.testing import LocalCluster


class Collector:
    """Takes metrics; `refuses` makes it answer with an error."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.refuses = False
        self._server = grpc.server(ThreadPoolExecutor(2))
        call = grpc.unary_unary_rpc_method_handler(
            self._take,
            request_deserializer=ExportMetricsServiceRequest.FromString,
            response_serializer=ExportMetricsServiceResponse.SerializeToString,
        )
        service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"Export": call}),)
        )
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _take(self, request: Any, context: Any) -> Any:
        if self.refuses:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no such key")
        self.headers.append(dict(context.invocation_metadata()))
        self.requests.append(request)
        return ExportMetricsServiceResponse()

    def metrics(self) -> dict[str, list[Any]]:
        """Metrics of all requests by name, oldest first."""
        found: dict[str, list[Any]] = {}
        for request in list(self.requests):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        found.setdefault(metric.name, []).append(metric)
        return found

    def close(self) -> None:
        self._server.stop(0)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


class Node(Starting):
    """A server with so many series."""

    def __init__(self, series: int = 1) -> None:
        super().__init__("broker b")
        self.series = series

    def collect(self, into: Exposition) -> Iterator[None]:
        for at in range(self.series):
            into.gauge("a", "A.").add(labels(at=at), at)
            yield


def sender(url: str, *nodes: Operated, **changes: Any) -> MetricsSender:
    target = CollectorTarget(url, {"api-key": "k"}, interval_ms=10, timeout_ms=5_000)
    given: dict[str, Any] = {"series_max": 100, "clock": SystemClock()} | changes
    return MetricsSender(lambda: nodes, target, **given)


def test_a_broker_sends_its_metrics_to_a_collector(collector: Collector) -> None:
    with LocalCluster(
        metrics_exporter_type="OTLP_GRPC",
        metrics_grpc_exporter_target=collector.url,
        metrics_grpc_exporter_header="Api-Key:secret",
        metric_grpc_exporter_interval_in_mills=100,
        metrics_label="zone:a",
    ) as cluster:
        with mq.Producer("p", namesrv=cluster.namesrv) as producer:
            producer.send_batch([mq.Message("Orders", b"x") for _ in range(7)])

        def stored() -> list[Any]:
            last = collector.metrics().get("rocketmq_messages_in_total", [])
            return [
                point
                for metric in last[-1:]
                for point in metric.sum.data_points
                if {one.key: one.value.string_value for one in point.attributes}["topic"] == "Orders"
            ]

        (point,) = until_sync(stored)
        assert point.as_int == 7
        told = {one.key: one.value.string_value for one in point.attributes}
        assert (told["node_id"], told["zone"], told["message_type"]) == ("broker-a", "a", "normal")
        assert collector.headers[0]["api-key"] == "secret"
        names = set(collector.metrics())
    assert {"rocketmq_rpc_latency", "rocketmq_storage_size", "sparrow_stalls_total"} <= names
    assert collector.metrics()["rocketmq_rpc_latency"][-1].unit == "milliseconds"


def test_many_series_come_in_several_requests_and_are_bounded(collector: Collector) -> None:
    async def main() -> None:
        one = sender(collector.url, Node(3000), series_max=2500)
        assert await one.send()
        sent = [len(metric.gauge.data_points) for metric in collector.metrics()["a"]]
        assert sum(sent) == 2500 and max(sent) <= 1000
        (left_out,) = collector.metrics()["sparrow_metrics_series_left_out"]
        assert left_out.gauge.data_points[0].as_int == 500
        one.start()
        await one.close()
        await one.close()

    run(main())


def test_a_collector_that_is_gone_or_refuses_is_named_and_tried_again(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        collector.refuses = True
        one = sender(collector.url, Node())
        one.start()
        await until(lambda: "metrics were not sent to" in caplog.text)
        collector.refuses = False
        await until(lambda: collector.requests)
        await one.close()
        gone = sender(f"http://127.0.0.1:{free_port()}", Node())
        assert not await gone.send()

    with caplog.at_level(logging.WARNING, "sparrowmq.operators"):
        run(main())
    assert f"metrics were not sent to {collector.url}: it did not take them" in caplog.text


def test_an_error_while_collecting_does_not_end_the_task(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Node):
        def collect(self, into: Exposition) -> Iterator[None]:
            yield
            raise ZeroDivisionError("broken figures")

    class Never:
        def export(self, *arguments: Any, **more: Any) -> MetricExportResult:
            raise AssertionError

        def shutdown(self, *arguments: Any, **more: Any) -> None:
            pass

    async def main() -> None:
        rounds = 0

        async def sleep(seconds: float) -> None:
            nonlocal rounds
            rounds += 1
            await asyncio.sleep(0)

        one = sender("http://x", Broken(), sleep=sleep, make=lambda target: Never())
        one.start()
        await until(lambda: rounds > 3)
        await one.close()

    with caplog.at_level(logging.WARNING, "sparrowmq.operators"):
        run(main())
    assert "broken figures" in caplog.text


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (NameServerSettings, "sparrow_bound_used"),
        (ProxySettings, "rocketmq_proxy_up"),
        (CoordinatorSettings, "sparrow_coordinator_database_answers"),
    ],
)
def test_every_server_sends_its_metrics_as_a_broker_does(
    settings: type[Any], name: str, collector: Collector, tmp_path: Path
) -> None:
    wanted = settings(
        listen_port=0,
        metrics_exporter_type="OTLP_GRPC",
        metrics_grpc_exporter_target=collector.url,
        metric_grpc_exporter_interval_in_mills=100,
        metrics_label="zone:a",
        **{"database_url": sqlite_url(tmp_path / "c.db")} if settings is CoordinatorSettings else {},
    )

    async def main() -> None:
        if settings is NameServerSettings:
            servers = LocalServers(wanted)
            await servers.start()
            await until(lambda: name in collector.metrics())
            await servers.close()
            return
        stop = asyncio.Event()
        serve = serve_proxy if settings is ProxySettings else serve_coordinator
        serving = asyncio.create_task(serve(wanted, stop, lambda where, metrics: None))
        await until(lambda: name in collector.metrics() or serving.done())
        stop.set()
        await serving

    run(main())
    (point, *_) = collector.metrics()[name][-1].gauge.data_points
    assert {one.key: one.value.string_value for one in point.attributes}["zone"] == "a"


@pytest.mark.parametrize("settings", [BrokerSettings, NameServerSettings, ProxySettings, CoordinatorSettings])
def test_settings_that_lack_something(settings: type[Any]) -> None:
    with pytest.raises(SettingsError, match="metricsGrpcExporterTarget=http://HOST:4317"):
        settings(metrics_exporter_type="OTLP_GRPC")
    for header in ("no colon", "a:", "a b:c", "a:b,é:c"):
        with pytest.raises(SettingsError, match="is not name:value") as error:
            settings(metrics_grpc_exporter_header=header)
        assert "no colon" not in str(error.value), "it may be a secret"
    for target in ("http://", "h:port", "h:99999", "https://[::1", "https://a b:1", "ftp://h", "h\n:1"):
        with pytest.raises(SettingsError, check=about(setting="metricsGrpcExporterTarget", value=target)):
            settings(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target=target)


def test_url_of_a_collector() -> None:
    assert collector_url("collector:4317") == "https://collector:4317"
    assert collector_url("httpd.internal:4317") == "https://httpd.internal:4317"
    assert collector_url("http://[::1]:4317") == "http://[::1]:4317"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "OTLP_MODULE", "sparrowmq_no_such.module")
    with pytest.raises(SettingsError, match=r"pip install 'sparrowmq\[otlp\]'"):
        operators.need_otlp()
