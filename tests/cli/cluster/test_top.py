"""`sparrow top` and `sparrow group lag` at a real cluster, with a broker that never answers beside it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sparrow
from tests.support import run, until_sync
from tests.terminal import Terminal

import sparrowmq as mq
from sparrowmq.cli.cluster import cluster_look
from sparrowmq.cli.cluster.cluster_look import gathered
from sparrowmq.core.errors import RequestTimeoutError
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Ten messages, of which `late` consumed four; `new` committed one of two queues."""
    with LocalCluster() as running:
        running.create_topic("Orders", queues=1)
        running.create_topic("Unread", queues=1)
        running.create_topic("Two", queues=2)
        with mq.Producer("p", namesrv=running.namesrv) as producer:
            producer.send_batch([mq.Message("Orders", b"x") for _ in range(10)])
            producer.send_batch([mq.Message("Unread", b"x") for _ in range(3)])
            for queue in range(2):
                producer.send(mq.Message("Two", b"x"), queue=mq.MessageQueue("Two", "broker-a", queue))
        with mq.Admin(namesrv=running.namesrv) as admin:
            admin.groups.create("late")
            admin.groups.create("new")
            admin.groups.commit("late", mq.MessageQueue("Orders", "broker-a", 0), 4)
            admin.groups.commit("new", mq.MessageQueue("Two", "broker-a", 1), 1)
        yield running


@pytest.fixture
def hung(cluster: LocalCluster) -> Iterator[str]:
    """The address of a broker that takes connections and never answers."""
    client = RemotingClient()

    async def register(address: str) -> None:
        told = {"broker_name": "broker-b", "broker_addr": address, "cluster_name": "DefaultCluster"}
        header = headers.RegisterBrokerRequest(**told, broker_id=0, ha_server_addr="")
        command = Command(RequestCode.REGISTER_BROKER, ext=headers.to_ext(header))
        answer = await client.call(cluster.namesrv, command, 5)
        assert answer.code == 0, answer.remark

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        cluster.call(register(address))
        yield address
        cluster.call(client.close())  # the name server forgets a broker without a connection


def figures(sparrow: Sparrow, *options: str) -> dict[str, Any]:
    (found,) = sparrow("top", "--json", "--interval", "0.2", *options).values
    assert isinstance(found, dict)
    return found


def by(rows: list[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    return {row[name]: row for row in rows}


def test_the_figures_as_json(sparrow: Sparrow) -> None:
    found = figures(sparrow)
    (broker,) = found["brokers"]
    assert (broker["broker"], broker["id"], broker["error"], found["failed"]) == ("broker-a", 0, None, {})
    assert broker["stalls"] >= 0 and 0 <= broker["disk_percent"] <= 100
    topics = by(found["topics"], "topic")
    assert topics["Orders"] == {"topic": "Orders", "stored_per_second": 0.0, "groups": 1}
    assert topics["Unread"] == {"topic": "Unread", "stored_per_second": 0.0, "groups": 0}
    groups = by(found["groups"], "group")
    assert (groups["late"]["lag_messages"], groups["late"]["unknown_queues"]) == (6, 0)
    assert groups["late"]["lag_seconds"] > 0
    assert (groups["new"]["lag_messages"], groups["new"]["unknown_queues"]) == (0, 1)
    assert not any(name.startswith(("%", "CID_")) for name in groups)
    assert len(figures(sparrow, "--system")["topics"]) > len(topics)


def test_what_is_stored_and_consumed_meanwhile_has_rates(sparrow: Sparrow, cluster: LocalCluster) -> None:
    queue, at = mq.MessageQueue("Orders", "broker-a", 0), 4
    with mq.Producer("p", namesrv=cluster.namesrv) as producer, mq.Admin(namesrv=cluster.namesrv) as admin:

        def moving() -> bool:
            nonlocal at
            found: list[dict[str, Any]] = []
            asking = threading.Thread(target=lambda: found.append(figures(sparrow)))
            asking.start()
            while asking.is_alive():
                producer.send(mq.Message("Orders", b"x"))
                at += 1
                admin.groups.commit("late", queue, at)
                asking.join(0.02)
            topic = by(found[0]["topics"], "topic")["Orders"]["stored_per_second"]
            return bool(topic and by(found[0]["groups"], "group")["late"]["consumed_per_second"])

        until_sync(moving)
        admin.groups.commit("late", queue, 4)


def test_the_tables_without_a_terminal(sparrow: Sparrow) -> None:
    text = sparrow("top", "--interval", "0.2").out
    assert re.search(r"^late +\d+ +[\d.]+ (s|min \d+ s) +0\.0", text, re.M)
    assert re.search(r"^new +0 +0 s +0\.0 +1$", text, re.M)


def test_a_broker_that_hangs_is_named_and_holds_nothing_up(
    sparrow: Sparrow, hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_look, "BROKER_SECONDS", 0.5)
    found = figures(sparrow)
    brokers = by(found["brokers"], "broker")
    assert brokers["broker-b"]["error"] == "it did not answer within 0.5 s"
    assert brokers["broker-b"]["stored_per_second"] is None
    assert found["failed"] == {"broker-b": "it did not answer within 0.5 s"}
    assert by(found["groups"], "group")["late"]["lag_messages"] >= 6
    answer = sparrow("group", "lag", "late", "--json")
    assert answer.values[0]["group"] == "late"
    assert "broker-b: it did not answer within 0.5 s; the figures do not include it" in answer.err


def test_how_far_groups_are_behind(sparrow: Sparrow) -> None:
    rows = by(sparrow("group", "lag", "--json").values, "group")
    assert rows["new"] == {"group": "new", "lag_messages": 0, "lag_seconds": 0.0, "unknown_queues": 1}
    assert any(line.split()[:1] == ["late"] for line in sparrow("group", "lag", "late").lines)
    assert "no broker has an offset of group 'nobody'" in sparrow("group", "lag", "nobody", status=1).err


def test_details_are_bounded_in_number_and_time() -> None:
    async def main() -> None:
        running = most = 0

        async def ask(at: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(3600 if at == 3 else 0)
            running -= 1
            if at == 5:
                raise RequestTimeoutError("late", address="a")
            return at

        asks: dict[int, Callable[[], Any]] = {at: (lambda at=at: ask(at)) for at in range(100)}
        found = await gathered(asks, most=50, seconds=0.3)
        assert found == {at: at for at in range(50) if at not in (3, 5)}
        assert most == cluster_look.TOGETHER
        assert await gathered({}) == {}

        async def broken() -> int:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await gathered({1: broken}, seconds=0.3)

    run(main())


# In a terminal


@pytest.fixture
def screen(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `sparrow top` in a terminal."""
    open_ones: list[Terminal] = []

    def start(**environment: str) -> Terminal:
        command = [
            sys.executable,
            "-m",
            "sparrowmq.cli.main",
            "top",
            "--interval",
            "0.3",
            "-n",
            cluster.namesrv,
        ]
        variables = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", **environment}
        open_ones.append(Terminal(command, variables))
        return open_ones[-1]

    yield start
    for one in open_ones:
        one.close()


LEAVES = "\x1b[?1049l"
"""What leaves a terminal's second screen."""


def test_a_live_view_obeys_keys_and_leaves_the_terminal_as_it_was(
    screen: Callable[..., Terminal], cluster: LocalCluster
) -> None:
    terminal = screen()
    before = termios.tcgetattr(terminal.descriptor)
    terminal.wait("late")
    terminal.wait("q quit")
    terminal.type(" ")
    terminal.wait("paused")
    terminal.type(" n")
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Orders", b"x") for _ in range(1234)])
    terminal.wait(r"1,2\d\d +")
    terminal.type("\x1b[B\r")
    terminal.wait("topic Orders")
    terminal.wait("esc back")
    terminal.type("\x1b")
    terminal.wait("enter open")
    terminal.type("q")
    assert terminal.end() == 0, terminal.shown
    assert terminal.written.count(LEAVES) == 1
    assert termios.tcgetattr(terminal.descriptor) == before


@pytest.mark.parametrize(("how", "status"), [("key", 130), ("term", 0)])
def test_ctrl_c_and_signals_leave_the_terminal_as_it_was(
    screen: Callable[..., Terminal], how: str, status: int
) -> None:
    terminal = screen(NO_COLOR="1")
    before = termios.tcgetattr(terminal.descriptor)
    terminal.wait("q quit")
    if how == "key":
        terminal.type("\x03")
    else:
        os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.end() == status, terminal.shown
    assert LEAVES in terminal.written and "Traceback" not in terminal.shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.written), "no colour was asked for"
    assert termios.tcgetattr(terminal.descriptor) == before


def test_a_cluster_that_goes_away_is_said_below_its_last_figures(tmp_path: Path) -> None:
    with LocalCluster() as running:
        command = [
            sys.executable,
            "-m",
            "sparrowmq.cli.main",
            "top",
            "--interval",
            "0.3",
            "-n",
            running.namesrv,
        ]
        terminal = Terminal(command, {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"})
        try:
            terminal.wait("q quit")
            running.stop()
            terminal.wait("these figures are old: ")
            terminal.type("q")
            assert terminal.end() == 0, terminal.shown
        finally:
            terminal.close()


def test_without_a_name_server_there_is_one_line(sparrow: Sparrow) -> None:
    answer = sparrow("top", "--json", "--namesrv", "127.0.0.1:1", status=1)
    assert answer.out == "" and answer.err.startswith("sparrow: ") and answer.err.count("\n") == 1
