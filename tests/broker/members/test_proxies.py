"""Members that proxies register at a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection
from tests.support import run

from sparrowmq.broker.tables import proxied as module
from sparrowmq.core.errors import NoRoomError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerConnection, ConsumerData, HeartbeatData
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def ask(rig: Rig, code: int, proxy: Any, body: bytes = b"", **ext: str) -> Command:
    found = rig.parts.handlers[code](proxy, Command(code, 1, ext=ext, body=body))
    if isinstance(found, Command):
        return found

    async def awaited() -> Command:
        return await found

    return run(awaited())


def register(rig: Rig, proxy: Any, client_id: str, group: str = "g", topic: str = "T") -> Command:
    consumer = ConsumerData(group, subscriptions=(SubscriptionData(topic, "*"),))
    body = HeartbeatData(client_id, consumers=(consumer,)).encode()
    fields = {"clientAddress": f"10.0.0.1:{len(client_id)}", "language": "GO", "clientVersion": "413"}
    return ask(rig, Code.REGISTER_PROXIED_CLIENT, proxy, body, **fields)


def shown(rig: Rig, group: str = "g") -> list[tuple[str, str, str]]:
    answer = ask(rig, Code.GET_CONSUMER_CONNECTION_LIST, connection(), consumerGroup=group)
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return []
    body = ConsumerConnection.decode(answer.body)
    return sorted((one.client_id, one.client_addr, one.language) for one in body.connections)


def test_proxy_members_are_listed_until_they_leave_or_their_proxy_disconnects(rig: Rig) -> None:
    one, two = connection(5001), connection(5002)
    for proxy, client_id in ((one, "a"), (one, "bb"), (two, "ccc")):
        assert register(rig, proxy, client_id).code == ResponseCode.SUCCESS
    assert shown(rig) == [("a", "10.0.0.1:1", "GO"), ("bb", "10.0.0.1:2", "GO"), ("ccc", "10.0.0.1:3", "GO")]
    assert rig.topics.get("%RETRY%g") is not None, "by which tools find the brokers of a group"
    left = {"clientID": "a", "consumerGroup": "g"}
    assert ask(rig, Code.UNREGISTER_PROXIED_CLIENT, two, **left).code == ResponseCode.SUCCESS
    assert len(shown(rig)) == 3, "it is of another proxy"
    ask(rig, Code.UNREGISTER_PROXIED_CLIENT, one, **left)
    assert [name for name, _, _ in shown(rig)] == ["bb", "ccc"]
    rig.parts.proxy_requests.connection_gone(one)
    assert [name for name, _, _ in shown(rig)] == ["ccc"]
    rig.parts.proxy_requests.connection_gone(two)
    assert shown(rig) == [] and rig.parts.proxied.count == rig.parts.proxied.subscribed == 0


def test_client_that_moved_to_another_proxy_stays_when_the_first_disconnects(rig: Rig) -> None:
    one, two = connection(5001), connection(5002)
    register(rig, one, "a")
    register(rig, two, "a")
    rig.parts.proxy_requests.connection_gone(one)
    assert [name for name, _, _ in shown(rig)] == ["a"]


def test_number_of_proxy_members_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROXIED_MAX", 6)
    monkeypatch.setattr(module, "PROXIED_OF_ONE", 2)
    one, two, three = connection(5001), connection(5002), connection(5003)
    for proxy, client_id in ((one, "a"), (one, "b"), (two, "c"), (two, "d")):
        register(rig, proxy, client_id)
    register(rig, one, "a")
    with pytest.raises(NoRoomError, match="this connection has 2 members"):
        register(rig, one, "e")
    register(rig, three, "e")
    register(rig, three, "f")
    with pytest.raises(NoRoomError, match="have 6 members at proxies"):
        register(rig, connection(5004), "g")
    monkeypatch.setattr(module, "SUBSCRIBED_MAX", rig.parts.proxied.subscribed)
    with pytest.raises(NoRoomError, match="subscriptions"):
        register(rig, three, "e", topic="a-longer-topic")


def test_members_without_their_own_connection_are_supported(rig: Rig) -> None:
    """Code 307 goes to the proxy's connection; a heartbeat with the same client id has precedence."""
    proxy = connection(5001)
    register(rig, proxy, "a")
    calls = rig.parts.exchange.calls
    assert calls._connection("g", "a") is proxy and calls._online("g") == ["a"]
    assert calls._connection("g", "b") is None
    reads = ConsumerData("g", subscriptions=(SubscriptionData("T", "*"),))
    own = connection(5002)
    ask(rig, Code.HEART_BEAT, own, HeartbeatData("a", consumers=(reads,)).encode())
    assert calls._connection("g", "a") is own
