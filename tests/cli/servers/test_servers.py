"""`sparrow up`, `nameserver` and `broker`: the effect of the options, and servers that are started
separately.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import free_port, run

from sparrowmq.runtime.brokers import BrokerProcess
from sparrowmq.runtime.extras import install_line
from sparrowmq.runtime.servers import Listening

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

PROGRAM = [sys.executable, "-m", "sparrowmq.cli.main"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What would be run: pairs of name server settings and broker settings."""
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        "sparrowmq.runtime.process.run_servers",
        lambda nameserver, broker, ready, beside, **_: found.append((nameserver, broker)),
    )
    for name in ("SPARROW_NAMESRV", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_up_by_default(sparrow: Sparrow, started: list[tuple[Any, Any]]) -> None:
    assert sparrow("up").err == ""
    ((nameserver, broker),) = started
    assert (nameserver.listen_port, nameserver.bind_address) == (9876, "127.0.0.1")
    assert nameserver.kv_config_path == Path("sparrow-data/namesrv/kvConfig.json")
    assert (broker.listen_port, broker.bind_address, broker.broker_ip1) == (10911, "127.0.0.1", "127.0.0.1")
    assert broker.store_path_root_dir == Path("sparrow-data/store")


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would run beside the servers, given to `run_servers`."""
    found: list[Any] = []
    monkeypatch.setattr(
        "sparrowmq.runtime.process.run_servers",
        lambda nameserver, broker, ready, beside, **_: found.append(beside),
    )
    return found


LISTENING = Listening("127.0.0.1:5", "127.0.0.1:6", None)


def test_up_has_a_coordinator_beside_it_or_not(
    sparrow: Sparrow, beside: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, str]] = []

    async def keep_child(texts: dict[str, str], say: object, complain: object) -> None:
        kept.append(texts)

    monkeypatch.setattr("sparrowmq.runtime.coordinator.keep_child", keep_child)
    monkeypatch.setenv("SPARROW_COORDINATOR_LEASE_TIME", "20000")
    data = tmp_path / "new"
    sparrow("up", "--data", str(data), "--coordinator-port", "0", "--no-proxy")
    run(beside[0](LISTENING))
    assert kept == [
        {
            "databaseUrl": f"sqlite:///{data}/coordinator.db",
            "metricsExporterType": "PROM",
            "namesrvAddr": "127.0.0.1:5",
            "leaseTime": "20000",
            "listenPort": "0",
        }
    ]
    assert data.is_dir()
    sparrow("up", "--no-coordinator", "--no-proxy")
    assert beside[1] is None


def test_up_has_a_grpc_proxy_beside_it_or_not(
    sparrow: Sparrow, beside: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, str]] = []

    async def keep_child(texts: dict[str, str], say: object, complain: object) -> None:
        kept.append(texts)

    monkeypatch.setattr("sparrowmq.runtime.proxy.keep_child", keep_child)
    monkeypatch.setenv("SPARROW_PROXY_BIND_ADDRESS", "127.0.0.2")
    sparrow("up", "--no-coordinator", "--proxy-port", "0")
    run(beside[0](LISTENING))
    own = {"namesrvAddr": "127.0.0.1:5", "bindAddress": "127.0.0.2", "listenPort": "0"}
    assert kept == [{"metricsExporterType": "PROM", **own}]
    sparrow("up", "--no-coordinator", "--proxy-port", "0", "--no-metrics")
    run(beside[1](LISTENING))
    assert kept[1] == own


def test_up_without_the_extra_says_so_in_one_line_and_runs_on(
    sparrow: Sparrow, beside: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.runtime.coordinator.PACKAGES", ("no_such_package",))
    monkeypatch.setattr("sparrowmq.runtime.proxy.PACKAGES", {"no_such.package": "such"})
    sparrow("up")
    run(beside[0](LISTENING))
    assert capsys.readouterr().out == (
        f"coordinator  not started; type: {install_line('coordinator')}\n"
        f"gRPC proxy   not started; type: {install_line('proxy')}\n"
    )


def test_up_with_options(sparrow: Sparrow, started: list[tuple[Any, Any]], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathRootDir=/elsewhere\nbrokerName=x\nlistenPort=5\nsendMessageThreadPoolNums=1\n")
    options = (
        "--nameserver-port",
        "1",
        "--broker-port",
        "2",
        "--set",
        "regionId=r",
        "--set",
        "traceOn=false",
    )
    outcome = sparrow("up", "-c", str(conf), "--data", str(tmp_path), *options)
    assert outcome.err == (
        "sparrow: warning: known to RocketMQ, without effect in this release: sendMessageThreadPoolNums\n"
    )
    ((nameserver, broker),) = started
    assert (nameserver.listen_port, broker.listen_port, broker.broker_name) == (1, 2, "x")
    assert (broker.region_id, broker.trace_on) == ("r", False)
    assert broker.store_path_root_dir == tmp_path / "store"


def test_a_file_may_say_where_the_data_are(
    sparrow: Sparrow, started: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathRootDir=/elsewhere\n")
    sparrow("up", "-c", str(conf))
    assert started[0][1].store_path_root_dir == Path("/elsewhere")


def test_nameserver(sparrow: Sparrow, started: list[tuple[Any, Any]]) -> None:
    outcome = sparrow("nameserver", "--port", "3", "--bind", "10.0.0.1")
    assert outcome.err.startswith("sparrow: warning: bindAddress=10.0.0.1: anyone")
    ((nameserver, broker),) = started
    assert broker is None
    assert (nameserver.listen_port, nameserver.bind_address) == (3, "10.0.0.1")


def test_broker(sparrow: Sparrow, started: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_REGION_ID", "from-env")
    sparrow("broker", "--namesrv", "a:1;b:2", "--port", "4", "--data", "/d")
    ((nameserver, broker),) = started
    assert nameserver is None
    assert broker.name_servers == ("a:1", "b:2")
    assert (broker.listen_port, broker.region_id, broker.store_path_root_dir) == (
        4,
        "from-env",
        Path("/d/store"),
    )


def test_a_broker_without_name_server_is_warned_of(sparrow: Sparrow, started: list[tuple[Any, Any]]) -> None:
    sparrow.namesrv = ""
    assert "no name server: clients will not find this broker" in sparrow("broker").err
    assert started[0][1].namesrv_addr == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("up", "--set", "listenPrt=1"), "did you mean listenPort?"),
        (("up", "--set", "listenPort=99999"), "listenPort=99999"),
        (("up", "-c", "/no/such.conf"), "/no/such.conf cannot be read"),
        (("broker", "--namesrv", "nowhere"), "'nowhere' is not an address"),
        (("nameserver", "--set", "brokerName=x"), "brokerName: there is no such setting"),
    ],
)
def test_bad_settings_are_one_line(sparrow: Sparrow, arguments: tuple[str, ...], text: str) -> None:
    outcome = sparrow(*arguments, status=1)
    assert text in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_servers_started_apart_work_together(sparrow: Sparrow, tmp_path: Path) -> None:
    port = free_port()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=apart\nnamesrvAddr=127.0.0.1:{port}\nlistenPort=0\n")
    servers: list[subprocess.Popen[str]] = []
    try:
        for arguments in (
            ("nameserver", "--port", str(port)),
            ("broker", "-c", str(conf), "--data", str(tmp_path)),
        ):
            servers.append(subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, text=True))
            lines = iter(servers[-1].stdout.readline, "")
            assert any(line.startswith("Ctrl-C") for line in lines)
        sparrow.namesrv = f"127.0.0.1:{port}"
        assert sparrow("topic", "create", "Apart").out == "Apart: 8 queues on apart\n"
        assert sparrow("send", "Apart", "x").out.startswith("SEND_OK")
    finally:
        for server in reversed(servers):
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
    assert [server.returncode for server in servers] == [0, 0]


@pytest.mark.parametrize("option", ["--nameserver-port", "--broker-port", "--coordinator-port"])
def test_a_port_out_of_range_is_refused_by_the_name_of_its_option(option: str, sparrow: Sparrow) -> None:
    assert option in sparrow("up", option, "65536", status=2).err


def test_data_that_is_a_file_is_told(sparrow: Sparrow, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("kept")
    assert (
        f"--data {path}: this is a file; give a directory" in sparrow("up", "--data", str(path), status=1).err
    )
    assert path.read_text() == "kept"


def test_up_with_several_brokers(sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[Any] = []

    def run_cluster(nameserver: Any, planned: Any, *, ready: Any, complain: Any, beside: Any) -> None:
        found.append((nameserver, planned, beside))
        brokers = [BrokerProcess(one, "127.0.0.1:5") for one in planned]
        brokers[1].address = "127.0.0.1:7"
        ready(Listening("127.0.0.1:5", None, None), brokers)

    monkeypatch.setattr("sparrowmq.runtime.brokers.run_cluster", run_cluster)
    given = (
        "--broker-port",
        "20",
        "--data",
        str(tmp_path),
        "--set",
        "regionId=r",
        "--no-coordinator",
        "--no-proxy",
    )
    outcome = sparrow("up", "--brokers", "2", *given)
    ((nameserver, planned, beside),) = found
    assert (nameserver.listen_port, beside) == (9876, None)
    assert [one.texts["listenPort"] for one in planned] == ["20", "30"]
    assert {one.texts["regionId"] for one in planned} == {"r"}
    assert f"broker       127.0.0.1:7  (broker-b, data {tmp_path}/store-b)" in outcome.lines
    assert "stopped cleanly" in outcome.lines
    assert "26" in sparrow("up", "--brokers", "27", status=2).err


def test_up_warns_of_stores_that_no_broker_serves(
    sparrow: Sparrow, started: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    (tmp_path / "store-b").mkdir()
    told = sparrow("up", "--data", str(tmp_path)).err
    assert f"warning: not served: {tmp_path}/store-b; messages there can be read again" in told
    assert len(started) == 1
