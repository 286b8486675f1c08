"""The operators' port at a real socket: what it answers, and whom it lets go."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.core.errors import ListenError
from sparrowmq.core.figures.exposition import Aside, Exposition, Family, labels
from sparrowmq.httpd.asgi import accepts_gzip
from sparrowmq.httpd.operators import CHUNK_BYTES, TEXTS_MAX, OperatorApp, OperatorPort, OperatorProtocol


class Node:
    """A server with so many series, and what is said to be wrong with it."""

    def __init__(self, series: int = 1, value: str = "x") -> None:
        self.series, self.value = series, value
        self.wrong: list[str] = []
        self.missing: list[str] = []

    @property
    def node(self) -> str:
        return "broker b"

    def collect(self, into: Exposition) -> Iterator[Aside | None]:
        family = into.gauge("a", "A.")
        for at in range(self.series):
            family.add(labels(at=at, value=self.value), at)
            yield None

    def faults(self) -> list[str]:
        return self.wrong

    def lacks(self) -> list[str]:
        return self.missing


@asynccontextmanager
async def port_of(*nodes: Node, series_max: int = 10_000) -> AsyncIterator[OperatorPort]:
    port = OperatorPort(lambda: nodes, host="127.0.0.1", port=0, series_max=series_max)
    await port.start()
    try:
        yield port
    finally:
        await port.close()


async def connect(port: OperatorPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, number = port.address.rpartition(":")
    return await asyncio.open_connection(host, int(number))


async def ask(
    port: OperatorPort, path: str, method: str = "GET", accept: str = "*/*", encodings: str = "identity"
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    reader, writer = await connect(port)
    headers = f"Host: h\r\nAccept: {accept}\r\nAccept-Encoding: {encodings}\r\nConnection: close"
    writer.write(f"{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


async def state(port: OperatorPort, path: str) -> tuple[int, Any]:
    status, _, body = await ask(port, path)
    return status, json.loads(body)


def test_figures_come_as_prometheus_wants_them() -> None:
    async def main() -> None:
        async with port_of(Node(3)) as port:
            status, headers, body = await ask(port, "/metrics")
            assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert b'a{at="2",value="x"} 2\n' in body
            assert int(headers["content-length"]) == len(body)
            status, headers, body = await ask(port, "/metrics", "HEAD")
            assert (status, body) == (200, b"")

    run(main())


@pytest.mark.parametrize("encodings", ["gzip", "br, gzip;q=0.5", "deflate,GZIP"])
def test_text_is_compressed_for_those_who_accept_it(encodings: str) -> None:
    async def main() -> None:
        async with port_of(Node(5000)) as port:
            _, plain, text = await ask(port, "/metrics")
            assert "content-encoding" not in plain
            status, headers, body = await ask(port, "/metrics", encodings=encodings)
            assert (status, headers["content-encoding"]) == (200, "gzip")
            assert "accept-encoding" in headers["vary"]
            assert int(headers["content-length"]) == len(body) < len(text) / 5
            assert gzip.decompress(body) == text

    run(main())


@pytest.mark.parametrize("encodings", ["", "identity", "gzip;q=0", "gzip; q=0.0", "br", "x,;,"])
def test_text_is_not_compressed_for_others(encodings: str) -> None:
    assert not accepts_gzip(encodings)


def test_work_for_another_thread_is_done_there(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, int] = {}

    class Wide(Node):
        def collect(self, into: Exposition) -> Iterator[Aside | None]:
            yield None
            threads["loop"] = threading.get_ident()
            yield Aside(self._work(into))
            threads["after"] = threading.get_ident()

        def _work(self, into: Exposition) -> Iterator[object]:
            threads["work"] = threading.get_ident()
            yield from super().collect(into)

    lines = Family.lines

    def noted(family: Family, *, openmetrics: bool = False) -> Iterator[str]:
        threads["text"] = threading.get_ident()
        return lines(family, openmetrics=openmetrics)

    monkeypatch.setattr(Family, "lines", noted)

    async def main() -> None:
        async with port_of(Wide(3)) as port:
            assert b'a{at="2",value="x"} 2\n' in (await ask(port, "/metrics"))[2]
            here = threading.get_ident()
            assert (threads["loop"], threads["after"]) == (here, here)
            assert threads["work"] == threads["text"] != here

    run(main())


def test_a_large_text_is_sent_in_few_chunks() -> None:
    async def main() -> None:
        sent: list[int] = []

        async def send(message: Any) -> None:
            sent.append(len(message.get("body", b"")))

        async def receive() -> Any:
            return {"type": "http.request"}

        app = OperatorApp(lambda: [Node(20_000, "x" * 40)], series_max=20_000)
        await app({"type": "http", "method": "GET", "path": "/metrics", "headers": []}, receive, send)
        app.close()
        assert sum(sent) > 20_000 * 40
        assert sum(size > 0 for size in sent) <= sum(sent) / CHUNK_BYTES + 1

    run(main())


def test_openmetrics_comes_to_those_who_prefer_it() -> None:
    async def main() -> None:
        async with port_of(Node(3)) as port:
            accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
            status, headers, body = await ask(port, "/metrics", accept=accept)
            kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
            assert (status, headers["content-type"]) == (200, kind)
            assert b"# TYPE sparrow_metrics_refused counter\n" in body
            assert body.endswith(b"# EOF\n")

    run(main())


def test_health_and_readiness_name_their_reasons() -> None:
    async def main() -> None:
        node = Node()
        async with port_of(node) as port:
            well = {"node": "broker b", "ok": True, "reasons": []}
            assert await state(port, "/health") == (200, {"healthy": True, "nodes": [well]})
            assert await state(port, "/ready") == (200, {"ready": True, "nodes": [well]})
            node.missing = ["the disk is full"]
            assert (await state(port, "/health"))[0] == 200
            status, told = await state(port, "/ready")
            assert (status, told["nodes"][0]["reasons"]) == (503, ["the disk is full"])
            node.wrong = ["the disk failed"]
            status, told = await state(port, "/health")
            assert (status, told["healthy"], told["nodes"][0]["reasons"]) == (503, False, ["the disk failed"])
            assert (await state(port, "/ready"))[1]["nodes"][0]["reasons"] == [
                "the disk failed",
                "the disk is full",
            ]
        async with port_of() as empty:
            assert (await state(empty, "/ready"))[0] == 503, "nothing runs yet"

    run(main())


def test_what_is_left_out_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with port_of(Node(120), series_max=100) as port:
            _, _, body = await ask(port, "/metrics")
            assert b'sparrow_metrics_series_left_out{metric="a"} 20\n' in body
            assert body.count(b'\na{at="') == 100

    with caplog.at_level(logging.WARNING, "sparrowmq.operators"):
        run(main())
    assert "20 series of 1 metrics are left out of /metrics: the limit of each is" in caplog.text


def test_other_paths_and_methods_are_refused() -> None:
    async def main() -> None:
        async with port_of(Node()) as port:
            assert (await state(port, "/"))[0] == 200
            status, told = await state(port, "/metrics/")
            assert (status, list(told["paths"])) == (404, ["/metrics", "/health", "/ready"])
            status, headers, _ = await ask(port, "/metrics", "POST")
            assert (status, headers["allow"]) == (405, "get, head")

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"\x00" * 4096,
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 200_000,
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["tls", "zeros", "head", "length"],
)
def test_garbage_is_answered_and_closed(garbage: bytes) -> None:
    async def main() -> None:
        async with port_of(Node()) as port:
            reader, writer = await connect(port)
            writer.write(garbage)
            answer = b""
            with suppress(ConnectionError):
                answer = await reader.read(-1)  # it ends: they are closed
            assert not answer or answer.startswith(b"HTTP/1.1 400 ")
            writer.close()
            assert (await ask(port, "/metrics"))[0] == 200

    run(main())


def test_a_scraper_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of them as may be sent a text keep others from it only until their time is over."""
    monkeypatch.setattr(OperatorProtocol, "request_seconds", 1.0)

    async def main() -> None:
        async with port_of(Node(3000, "x" * 5000)) as port:
            silent = []
            for _ in range(TEXTS_MAX):
                reader, writer = await connect(port)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
                silent.append((reader, writer))
            await until(lambda: port.sending == TEXTS_MAX)
            status, headers, body = await ask(port, "/metrics")
            assert (status, headers["retry-after"]) == (503, "1")
            assert b"4 answers to /metrics are being sent" in body
            assert (await ask(port, "/health"))[0] == 200, "others are served meanwhile"
            await until(lambda: not port.sending)
            for _, writer in silent:
                writer.transport.abort()
            monkeypatch.setattr(OperatorProtocol, "request_seconds", 30.0)
            status, _, body = await ask(port, "/metrics")
            assert (status, b"\nsparrow_metrics_refused_total 1\n" in body) == (200, True)

    run(main())


def test_a_thousand_scrapers_at_once_are_answered_or_refused() -> None:
    """None waits without end, and what is made for them is bounded; then one is served as ever."""
    scrapers = 1000

    async def main() -> None:
        async with port_of(Node(200)) as port:
            most = 0

            async def scrape() -> int:
                nonlocal most
                try:
                    status = (await ask(port, "/metrics"))[0]
                except (ConnectionError, IndexError):  # closed before or instead of an answer
                    status = 0
                most = max(most, port.sending)
                return status

            answers = Counter(await asyncio.gather(*(scrape() for _ in range(scrapers))))
            assert answers[200] and set(answers) <= {0, 200, 503}
            assert most <= TEXTS_MAX
            assert (await ask(port, "/metrics"))[0] == 200

    run(main())


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        async with port_of(Node()) as port:
            number = int(port.address.rpartition(":")[2])
            other = OperatorPort(list, host="127.0.0.1", port=number, series_max=100)
            with pytest.raises(ListenError, match=f":{number} cannot be opened: .*metricsPromExporterPort"):
                await other.start()
            await other.close()
        unknown = OperatorPort(list, host="no.such.host.invalid", port=0, series_max=100)
        with pytest.raises(ListenError, match="cannot be opened"):
            await unknown.start()

    run(main())
