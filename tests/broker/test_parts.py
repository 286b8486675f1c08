"""A broker is assembled in one place: servers, rigs and simulations take their parts from `broker.parts`."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from tests.broker.rig import Rig, connection, pull_ext, send_command
from tests.support import about, run, until

from sparrowmq.broker.parts import BrokerParts
from sparrowmq.broker.server import Broker
from sparrowmq.broker.tables.table_file import SOON_SECONDS
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.managed import GroupPolicy
from sparrowmq.protocol.record import decode_records

ROOT = Path(__file__).parents[2]
BROKER = ROOT / "src" / "sparrowmq" / "broker"
WIRING = ("parts.py", "exchange.py", "upkeep.py", "delay/delayed_messages.py")


def called(path: Path) -> set[str]:
    """What a module calls of its imports from the broker's packages."""
    tree = ast.parse(path.read_text())
    known = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparrowmq.broker.")
        for alias in node.names
    }
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return known & calls


def parts_made() -> set[str]:
    """The classes that the assembly creates."""
    return {name for each in WIRING for name in called(BROKER / each) if name[0].isupper()}


def test_parts_of_a_broker_are_created_in_one_place() -> None:
    made = parts_made()
    assert {"SendPath", "PullPath", "InnerStore", "Flusher", "Membership", "Fence", "TopicTable"} <= made
    others = [path for path in BROKER.rglob("*.py") if path.relative_to(BROKER).as_posix() not in WIRING]
    shared = {"OccasionalLog"}  # a helper, not a part
    assert {path.name: twice for path in others if (twice := called(path) & made - shared)} == {}


@pytest.mark.parametrize("place", ["broker/rig.py", "simulation/server.py"])
def test_test_rig_creates_no_broker_parts(place: str) -> None:
    given = {"Background", "Reign", "store_settings"}
    assert called(ROOT / "tests" / place) == {"BrokerParts", *given}


def test_parts_work_without_a_socket(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.make_topic("TopicTest", 1)
    client = connection()

    def ask(command: Command) -> Command:
        rig.parts.handler.frames_received(client, FrameReader().feed(encode(command)))
        (answer,) = client.answers()
        return answer

    assert rig.groups.get("g") is not None
    assert ask(send_command(b"one")).code == ResponseCode.SUCCESS
    pulled = ask(Command(RequestCode.PULL_MESSAGE, 2, ext=dict(pull_ext())))
    assert [record.body for record in decode_records(pulled.body)] == [b"one"]
    rig.close()


def test_new_policy_reaches_pulls_and_members(tmp_path: Path) -> None:
    """The fence is created first; its calls reach parts that are created later."""

    async def main() -> None:
        rig = Rig(tmp_path)
        told: list[tuple[str, str]] = []
        rig.pulling.recheck = lambda group: told.append(("pulls", group))
        rig.parts.membership.tell = lambda group: told.append(("members", group))
        body = GroupPolicy("g", epoch=1, revision=1).encode()
        put = rig.parts.handlers[RequestCode.PUT_GROUP_POLICY]
        answer = await put(connection(), Command(RequestCode.PUT_GROUP_POLICY, 1, body=body))
        assert answer.code == ResponseCode.SUCCESS
        assert told == [("pulls", "g"), ("members", "g")]
        rig.close()

    run(main())


def test_server_runs_these_parts(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(BrokerSettings(store_path_root_dir=tmp_path, listen_port=0))
        with pytest.raises(InvalidStateError, check=about(what="started")):
            _ = broker.parts
        await broker.start()
        try:
            assert type(broker.parts) is BrokerParts
            assert broker.parts.address == broker.address
            assert broker.settings is broker.parts.settings
        finally:
            await broker.close()

    run(main())


def test_waiting_parts_use_the_given_sleep(tmp_path: Path) -> None:
    async def main() -> None:
        asked: list[float] = []

        async def sleep(seconds: float) -> None:
            asked.append(seconds)
            await asyncio.Event().wait()

        rig = Rig(tmp_path, sleep=sleep, flush_delay_offset_interval=7000, transaction_check_interval=9000)
        rig.parts.start()
        rig.topics.put_soon(TopicConfig(topic_name="T"))
        try:
            await until(lambda: {SOON_SECONDS, 0.05, 1.0, 5.0, 7.0, 9.0, 10.0} <= set(asked))
        finally:
            await rig.parts.stop()
            rig.close()

    run(main())


def test_no_part_sleeps_by_itself() -> None:
    """Except a sleep of zero, which only lets other tasks run."""
    calls = [
        (path.name, ast.unparse(node))
        for path in BROKER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.sleep"
    ]
    assert {call for _, call in calls} == {"asyncio.sleep(0)"}
