"""Pages of one broker's clients and of one name server, and the progress of a drain."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import insert
from tests.console.furnished import ODD
from tests.console.site import Reader, Site, site
from tests.console.test_pages import read
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.broker.server import Broker
from sparrowmq.coordinator.api.told.servers import registered
from sparrowmq.coordinator.cluster.explorer import BrokerNow, Servers, behind_masters
from sparrowmq.coordinator.database.tables import broker_seen
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.testing import LocalCluster
from sparrowmq.testing.cluster import SMALL_LOG_BYTES


def test_clients_are_listed_with_language_and_groups(
    console: Site, viewer: Reader, cluster: LocalCluster
) -> None:
    base = f"/brokers/{quote(cluster.broker_address, safe='')}"
    assert f'href="{base}/clients"' in viewer.page(base).text, "who may only read sees them, too"

    def shown(word: str) -> bool:
        page = viewer.page(f"{base}/clients?clients.q={word}")
        read(page)
        return word in page.part("clients") and "PYTHON" in page.part("clients")

    with mq.PushConsumer("seen-group", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(ODD.topic, handler=lambda message: None)
        until_sync(lambda: shown("seen-group"))
    until_sync(lambda: shown("shop"))
    csv = viewer.get(f"{base}/clients?_csv=clients").text
    assert csv.splitlines()[0] == "address,client_id,language,version,consumes,produces"
    grey = viewer.page(f"/brokers/{quote('10.9.9.9:1', safe='')}/clients")
    assert "there is no broker" in grey.words, "requests go to brokers only"


def test_use_of_bounds_is_on_the_pages_of_brokers_and_name_servers(
    console: Site, viewer: Reader, cluster: LocalCluster
) -> None:
    for path, names, translated in (
        ("brokers", ("Connections", "Memory of connections, bytes", "Topics", "Pulls that wait"), "连接数"),
        ("name-servers", ("Connections", "Brokers", "Pairs of a topic and a broker"), "连接数"),
    ):
        address = quote(cluster.namesrv if path == "name-servers" else cluster.broker_address, safe="")
        page = viewer.page(f"/{path}/{address}")
        read(page)
        assert all(name in page.part("bounds") for name in names), page.part("bounds")
        chinese = viewer.get(f"/{path}/{address}", **{"Accept-Language": "zh"})
        assert translated in chinese.part("bounds")
    address = quote(cluster.broker_address, safe="")
    found = {
        one["name"]: one for one in json.loads(console.call("GET", f"/cluster/servers/{address}/bounds").text)
    }
    assert 0 < found["topics"]["used"] < found["topics"]["most"]
    assert 0 < found["connections"]["used"] < found["connections"]["most"]


def test_name_server_page_shows_its_contents(viewer: Reader, cluster: LocalCluster) -> None:
    path = f"/name-servers/{quote(cluster.namesrv, safe='')}"
    assert f'href="{path}"' in viewer.page("/brokers").text
    page = viewer.page(path)
    read(page)
    assert f"broker-a 0 {cluster.broker_address} registered" in page.part("registered")
    assert "listenPort" in page.part("settings")
    assert "there is no name server" in viewer.page("/name-servers/127.0.0.1%3A1").words


def test_brokers_known_only_to_other_name_servers_are_named() -> None:
    known = Servers([BrokerNow("c", "b", 0, "1:1"), BrokerNow("c", "b", 1, "1:2")], [], 0)
    mine = mq.NameServerStatus("n", frozenset(), {"b": {0: "1:1"}, "z": {0: "9:9"}})
    found = {one["address"]: (one["broker"], one["listed"]) for one in registered(mine, known)}
    assert found == {"1:1": ("b", True), "1:2": ("b", False), "9:9": ("z", True)}


def test_lost_broker_is_shown_with_its_error_and_forgotten(console: Site, admin: Reader) -> None:
    """A broker that the service broker-check knows, and no name server lists any more."""
    database, address = console.coordinator._database, "127.0.0.1:9"
    assert database is not None
    values = {"broker": "lost", "broker_id": 1, "cluster": "c", "address": address, "last_seen": 1}
    with database.write() as connection:
        connection.execute(insert(broker_seen).values(**values, error="away since noon"))
    page = admin.page("/brokers")
    read(page)
    part = page.part("brokers")
    assert f"lost does not respond c slave 1 {address}" in part and "away since noon" in part
    assert admin.change(f"/brokers/{quote(address, safe='')}/forget", typed=address).status == 303
    assert "away since noon" not in admin.page("/brokers").part("brokers")


def test_drain_shows_what_is_left_and_who_started_it(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with LocalCluster() as cluster:
        with mq.Admin(namesrv=cluster.namesrv) as brokers, mq.Producer("p", namesrv=cluster.namesrv) as maker:
            brokers.topics.create("T", queues=1)
            brokers.groups.create("late")
            maker.send(mq.Message("T", b"x"))
            brokers.groups.commit("late", brokers.topics.status("T")[0].queue, 0)
        with site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found:
            admin, base = found.admin, f"/brokers/{quote(cluster.broker_address, safe='')}"
            assert admin.login("admin", found.password).status == 303
            asked = found.call("POST", "/services/broker-check/run", b"{}")
            assert asked.status == 200
            until_sync(lambda: "broker-a" in found.call("GET", "/brokers").text)
            assert "is not being drained" in admin.page(base).part("drain-left")
            csrf = admin.page(f"{base}/drain").hidden("csrf")
            seen = admin.post(f"{base}/drain", {"csrf": csrf, "step": "look", "forced": "forced"})
            assert "cannot be sent to" in seen.words
            assert admin.change(f"{base}/drain", {"forced": "forced"}).status == 303
            until_sync(lambda: "late 1" in admin.page(base).part("drain-left"))
            said = admin.page(base).part("drain")
            assert "draining" in said and "admin" in said and "agreed" in said
            assert admin.change(f"{base}/cancel").status == 303


def test_master_shows_its_slaves_and_slave_its_master(empty_database: Path, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with LocalCluster(broker_role="SYNC_MASTER") as cluster:
        slave = Broker(
            BrokerSettings(
                store_path_root_dir=tmp_path / "slave",
                listen_port=0,
                namesrv_addr=cluster.namesrv,
                broker_role="SLAVE",
                broker_id=1,
                mapped_file_size_commit_log=SMALL_LOG_BYTES,
                max_hash_slot_num=1000,
                max_index_num=5000,
            )
        )
        with site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found:
            admin = found.admin
            assert admin.login("admin", found.password).status == 303
            base = f"/brokers/{quote(cluster.broker_address, safe='')}"
            until_sync(lambda: "No slave is connected" in admin.page(base).part("slaves"))
            cluster.call(slave.start())
            try:
                with mq.Producer("p", namesrv=cluster.namesrv) as maker:
                    until_sync(lambda: maker.send(mq.Message("TBW102", b"x")).status.name == "SEND_OK")
                page = until_sync(
                    lambda: one if "in sync" in (one := admin.page(base)).part("slaves") else None
                )
                read(page)
                assert "SYNC_MASTER" in page.part("replication") and "serves" in page.part("replication")
                assert "itself included 2" in page.part("replication")
                other = f"/brokers/{quote(slave.address, safe='')}"
                until_sync(lambda: slave.address in admin.page("/brokers").part("brokers"))
                table = json.loads(found.call("GET", "/cluster/servers").text)["brokers"]
                assert [one["behind_bytes"] for one in table if one["broker_id"]] == [0]
                page = admin.page(other)
                read(page)
                assert "follows its master" in page.part("replication")
                assert "SLAVE" in page.part("replication") and "Copies from 127.0.0.1:" in page.part(
                    "replication"
                )
                assert "slave" in page.part("broker") and "which has no slaves" in page.part("slaves")
            finally:
                cluster.call(slave.close())


def test_lag_is_shown_only_for_slaves_when_both_ends_are_known() -> None:
    brokers = [
        BrokerNow("c", "b", 0, "1:1", log_end=900),
        BrokerNow("c", "b", 1, "1:2", log_end=700),
        BrokerNow("c", "b", 2, "1:3", log_end=950),
        BrokerNow("c", "z", 1, "1:4", log_end=700),
        BrokerNow("c", "b", 3, "1:5", error="away"),
    ]
    assert [one.behind_bytes for one in behind_masters(brokers)] == [None, 200, 0, None, None]
