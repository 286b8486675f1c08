"""A message with an Avro or protobuf body on its page: decoded, or with the reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.console.furnished import ODD
from tests.console.site import Site, site
from tests.console.test_pages import read
from tests.coordinator.cluster.bodies.test_body_schemas import BOTH, VALUE, datum, written
from tests.support import sqlite_url, until_sync

import sparrowmq as mq
from sparrowmq.coordinator.server import Coordinator
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import CoordinatorSettings
from sparrowmq.testing import LocalCluster


def shown(found: Site, topic: str, offset: int) -> str:
    page = found.admin.page(f"/messages/{topic}/broker-a/0/{offset}")
    read(page)
    return page.part("body")


def test_bodies_with_a_schema_are_decoded(
    empty_database: Path, tmp_path: Path, cluster: LocalCluster
) -> None:
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with (
        mq.Admin(namesrv=cluster.namesrv) as brokers,
        mq.Producer("schemas", namesrv=cluster.namesrv) as maker,
    ):
        for topic in ("Bills", "Framed"):
            brokers.topics.create(topic, queues=1)
        maker.send(mq.Message("Framed", b"12345" + datum(VALUE | {"note": ODD.markup})))
        maker.send(mq.Message("Framed", b"12345" + b"\xff" * 9))
        maker.send(mq.Message("Bills", b"\x08\x07"))
        until_sync(lambda: brokers.topics.status("Bills")[0].max_offset == 1)
    settings = {"database_url": sqlite_url(path), "namesrv_addr": cluster.namesrv}
    with site(**settings, body_schemas=written(tmp_path, BOTH)) as found:
        assert found.admin.login("admin", found.password).status == 303
        good = shown(found, "Framed", 0)
        assert "Decoded Avro – shop.Order" in good and '"total": "1.50"' in good and "alert(1)" in good
        bad = shown(found, "Framed", 1)
        assert "was not possible with shop.Order" in bad and "ff ff ff" in bad
        assert '"bill_id": "7"' in shown(found, "Bills", 0)
        api = "/cluster/messages/Bills/at?broker=broker-a&queue=0"
        assert "decoded" not in found.call("GET", api).text
        (one,) = json.loads(found.call("GET", f"{api}&decode=true").text)
        assert (one["decoded"]["codec"], one["decoded"]["error"]) == ("protobuf", "")
    with pytest.raises(SettingsError, match="cannot be read"):
        Coordinator(CoordinatorSettings(body_schemas=tmp_path / "none"))
