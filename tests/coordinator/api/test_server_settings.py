"""Settings of servers as viewers see them: RocketMQ's servers return passwords with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.coordinator.api.furnished import House, furnished

from sparrowmq.client.admin.types import NameServerStatus
from sparrowmq.coordinator.api.shared import PREFIX

TOLD = {
    "brokerName": "a",
    "flushDiskType": "ASYNC_FLUSH",
    "initAuthenticationUser": '{"username":"root","password":"toor-toor"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"toor-toor"}',
    "tls.server.keyPassword": "toor-toor",
}
SHOWN = {"brokerName": "a", "flushDiskType": "ASYNC_FLUSH"}


@pytest.fixture
def house(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    with furnished(migrated, tmp_path) as found:

        async def settings(broker: str) -> dict[str, str]:
            return TOLD

        async def status(address: str) -> NameServerStatus:
            return NameServerStatus(address, frozenset(), {}, TOLD)

        monkeypatch.setattr(found.admin, "brokers_settings", settings)
        monkeypatch.setattr(found.admin, "name_servers_status", status)
        yield found


@pytest.mark.parametrize("who", ["viewer", "admin"])
def test_nobody_sees_passwords_of_servers(house: House, who: str) -> None:
    token = house.tokens[who]
    seen = house.ask("GET", f"{PREFIX}/cluster/servers/a:1/settings", token=token)
    assert (seen.status, seen.answer) == (200, SHOWN)
    for part in ("changeable", "replication"):
        seen = house.ask("GET", f"{PREFIX}/cluster/servers/a:1/{part}", token=token)
        assert seen.status == 200 and "toor-toor" not in str(seen.answer)
    seen = house.ask("GET", f"{PREFIX}/cluster/name-servers/n1", token=token)
    assert (seen.status, seen.answer["settings"]) == (200, SHOWN)
