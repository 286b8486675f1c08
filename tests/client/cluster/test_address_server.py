from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.client.fake import fake_cluster
from tests.support import about, free_port, run, until

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.base.settings import ClientSettings, ProducerSettings
from sparrowmq.client.cluster import nameservers
from sparrowmq.client.cluster.address_server import AddressServer, address_server_url
from sparrowmq.client.producer.producer import Producer
from sparrowmq.core.errors import ConnectError, NoNameServerError, SettingsError
from sparrowmq.core.message import Message


class Page:
    """A web server with one text for every path."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 200
        self.paths: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.paths.append(self.path)
                self.send_response(page.status)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on standard error."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    for name in ("SPARROW_NAMESRV", "NAMESRV_ADDR", "SPARROW_NAMESRV_DOMAIN", "SPARROW_NAMESRV_SUBGROUP"):
        monkeypatch.delenv(name, raising=False)
    made = Page()
    yield made
    made.close()


@pytest.mark.proves("client:A-70", "client:A-74")
def test_page_is_selected_by_domain_subgroup_and_unit() -> None:
    url = address_server_url
    assert url("jmenv.tbsite.net", "nsaddr", None) == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    assert url("here:81", "mine", None) == "http://here:81/rocketmq/mine"
    assert url("here", "nsaddr", "unit1") == "http://here:8080/rocketmq/nsaddr-unit1?nofix=1"
    for bad in ("", "http://here", "here/path", "a b", "here?x"):
        with pytest.raises(SettingsError, check=about(setting="namesrv_domain")):
            url(bad, "nsaddr", None)


@pytest.mark.proves("client:A-70")
def test_first_line_is_the_list(page: Page) -> None:
    page.text = "\n10.0.0.1:9876;10.0.0.2:9876\r\nsomething else\n"
    server = AddressServer(address_server_url(page.domain, "nsaddr", None))
    assert run(server.fetch()) == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert page.paths == ["/rocketmq/nsaddr"]


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [("", 200, "its answer is empty"), ("no list", 200, "not host:port"), ("x", 500, "HTTP Error 500")],
)
def test_invalid_list_is_an_error_with_the_next_step(page: Page, text: str, status: int, says: str) -> None:
    page.text, page.status = text, status
    with pytest.raises(ConnectError, match=says) as caught:
        run(AddressServer(f"http://{page.domain}/rocketmq/nsaddr").fetch())
    assert "give the name servers' addresses" in str(caught.value)


def test_missing_address_server_is_an_error() -> None:
    url = f"http://127.0.0.1:{free_port()}/rocketmq/nsaddr"
    with pytest.raises(ConnectError, check=about(address=url)):
        run(AddressServer(url).fetch())


def test_silent_address_server_times_out() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/rocketmq/nsaddr"
        with pytest.raises(ConnectError, check=about(address=url)):
            run(AddressServer(url, timeout=0.05).fetch())


@pytest.mark.proves("client:A-33", "client:A-71")
def test_client_without_name_servers_looks_them_up_and_follows_changes(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (nameservers.FOLLOW_FIRST_SECONDS, nameservers.FOLLOW_SECONDS) == (10, 120)
    monkeypatch.setattr("sparrowmq.client.cluster.instance.FOLLOW_FIRST_SECONDS", 0.01)
    monkeypatch.setattr("sparrowmq.client.cluster.instance.FOLLOW_SECONDS", 0.01)

    async def main() -> None:
        async with fake_cluster("T") as one, fake_cluster("U") as two:
            page.text = one.namesrv
            async with Admin(settings=ClientSettings(namesrv_domain=page.domain)) as admin:
                assert await admin.topics.list() == ["T"]
                page.text = two.namesrv
                assert admin.calls.instance is not None
                names = admin.calls.instance.name_servers
                await until(lambda: names.addresses == (two.namesrv,))
                assert await admin.topics.list() == ["U"]
                page.status = 500
                asked = len(page.paths)
                await until(lambda: len(page.paths) > asked + 2)
                assert names.addresses == (two.namesrv,), "an address server that is away changes nothing"

    run(main())


@pytest.mark.proves("client:A-68")
def test_setting_has_precedence_over_environment_and_address_server(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with fake_cluster("T") as one, fake_cluster("U") as two:
            page.text = "127.0.0.1:1"
            monkeypatch.setenv("SPARROW_NAMESRV_DOMAIN", page.domain)
            monkeypatch.setenv("NAMESRV_ADDR", two.namesrv)
            async with Admin(one.namesrv) as admin:
                assert await admin.topics.list() == ["T"]
            async with Admin() as admin:
                assert await admin.topics.list() == ["U"]
            assert page.paths == []
            monkeypatch.delenv("NAMESRV_ADDR")
            page.text = one.namesrv
            monkeypatch.setenv("SPARROW_NAMESRV_SUBGROUP", "mine")
            async with Admin() as admin:
                assert await admin.topics.list() == ["T"]
            assert page.paths == ["/rocketmq/mine"]

    run(main())


def test_producer_sends_with_looked_up_name_servers(page: Page) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            page.text = cluster.namesrv
            settings = ProducerSettings(namesrv_domain=page.domain)
            async with Producer("p", settings=settings) as producer:
                assert (await producer.send(Message("T", b"x"))).queue.topic == "T"

    run(main())


def test_error_without_any_address_says_what_to_set(page: Page) -> None:
    async def main() -> None:
        with pytest.raises(NoNameServerError, match="SPARROW_NAMESRV"):
            await Admin().start()
        async with Admin(settings=ClientSettings(namesrv_domain="127.0.0.1:1")) as admin:
            with pytest.raises(ConnectError, check=about(address="http://127.0.0.1:1/rocketmq/nsaddr")):
                await admin.topics.list()

    run(main())
