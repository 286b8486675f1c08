from __future__ import annotations

import asyncio
import random

import pytest
from tests.support import about, run

from sparrowmq.client.cluster.nameservers import NameServers
from sparrowmq.core.errors import BrokerError, ConnectError, RequestTimeoutError, TransportError
from sparrowmq.protocol.frame import Command


class Caller:
    """Answers with the address; fails for those in `down`."""

    def __init__(self, **down: TransportError) -> None:
        self.down = down
        self.asked: list[str] = []
        self.dropped: list[str] = []

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        self.asked.append(addr)
        if addr in self.down:
            raise self.down[addr]
        return Command(0, remark=addr)

    def disconnect(self, addr: str, reason: str) -> None:
        self.dropped.append(addr)


def servers(caller: Caller, *addresses: str) -> NameServers:
    return NameServers(addresses, caller, random.Random(0))


@pytest.mark.proves("client:A-72")
def test_working_server_stays_selected() -> None:
    caller = Caller()
    names = servers(caller, "a", "b", "c")
    first = names.current
    for _ in range(5):
        assert run(names.call(Command(105), 1)).remark == first
    assert set(caller.asked) == {first}


@pytest.mark.proves("client:A-72")
def test_next_server_is_selected_after_a_failure_and_stays() -> None:
    caller = Caller(a=ConnectError("a is down"), b=RequestTimeoutError("b is slow"))
    names = servers(caller, "a", "b", "c")
    assert run(names.call(Command(105), 1)).remark == "c"
    asked = len(caller.asked)
    assert run(names.call(Command(105), 1)).remark == "c"
    assert len(caller.asked) == asked + 1


def test_error_names_all_servers_when_none_answers() -> None:
    caller = Caller(a=ConnectError("a is down"), b=ConnectError("b is down"))
    with pytest.raises(ConnectError) as caught:
        run(servers(caller, "a", "b").call(Command(105), 1))
    assert sorted(caller.asked) == ["a", "b"], "each is asked once"
    text = str(caught.value)
    assert text.startswith("none of the name servers a; b answered: ")
    assert "is down; start one (`sparrow up`), or give its address" in text


def test_single_server_is_named_in_the_error() -> None:
    caller = Caller(a=RequestTimeoutError("a is slow", address="a"))
    with pytest.raises(RequestTimeoutError) as caught:
        run(servers(caller, "a").call(Command(105), 1))
    assert str(caught.value).startswith("the name server did not answer: a is slow; start one")
    assert (caught.value.address, caught.value.code) == ("a", 10002)


@pytest.mark.proves("client:A-72")
def test_clients_are_spread_over_the_servers() -> None:
    starts = {NameServers(("a", "b", "c"), Caller(), random.Random(seed)).current for seed in range(30)}
    assert starts == {"a", "b", "c"}


@pytest.mark.proves("client:A-71")
def test_new_list_is_shuffled_and_the_current_server_stays_if_listed() -> None:
    caller = Caller()
    names = servers(caller, "a", "b", "c")
    used = names.current
    assert not names.replace(["c", "b", "a"]), "the same servers in another order are no change"
    assert names.addresses == ("a", "b", "c")
    assert names.replace(["d", "e", "f", used])
    assert (set(names.addresses), names.current, caller.dropped) == ({"d", "e", "f", used}, used, [])
    assert names.replace(["x", "y"])
    assert names.current in ("x", "y")
    assert caller.dropped == [used], "the connection to one that is not listed any more is closed"
    orders = set()
    for seed in range(20):
        other = NameServers(("a",), Caller(), random.Random(seed))
        other.replace(["p", "q", "r"])
        orders.add(other.addresses)
    assert len(orders) > 1


def test_list_that_shrinks_while_its_servers_fail_ends_the_call() -> None:
    class Shrinking(Caller):
        async def call(self, addr: str, command: Command, timeout: float) -> Command:
            names.replace(["z"])
            return await super().call(addr, command, timeout)

    caller = Shrinking(a=ConnectError("a"), b=ConnectError("b"), z=ConnectError("z", address="z", limit=3.0))
    names = servers(caller, "a", "b")
    with pytest.raises(ConnectError, check=about(address="z", limit=3.0)):
        run(names.call(Command(105), 1))


def test_calls_that_fail_together_try_every_server() -> None:
    """Each continues with the server after the one that it tried, not after the other's."""

    class Slow(Caller):
        async def call(self, addr: str, command: Command, timeout: float) -> Command:
            await asyncio.sleep(0)
            return await super().call(addr, command, timeout)

    async def main() -> None:
        names = servers(Slow(a=ConnectError("a is down")), "a", "b")
        names._current = 0
        answers = await asyncio.gather(*(names.call(Command(105), 1) for _ in range(4)))
        assert [answer.remark for answer in answers] == ["b"] * 4
        assert names.current == "b"

    run(main())


@pytest.mark.parametrize("code", [105, 106, 206])
def test_broker_and_name_server_addresses_are_distinguished(code: int) -> None:
    class Broker(Caller):
        async def call(self, addr: str, command: Command, timeout: float) -> Command:
            return Command(3, remark=f" request type {command.code} not supported")

    with pytest.raises(BrokerError, match=rf"from a:1: request type {code} not supported; is it a broker\?"):
        run(servers(Broker(), "a:1").call(Command(code), 1))
    assert run(servers(Broker(), "a:1").call(Command(318), 1)).code == 3, "not every name server knows it"
