"""Requests without a recorded answer: faults, refusals, side effects."""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.nameserver.helpers import BROKER, SECONDS, Ask, asked, asking, registration
from tests.support import run, until

from sparrowmq.nameserver.handlers import SMALL_BYTES, Handlers
from sparrowmq.nameserver.kv import KeyValues
from sparrowmq.nameserver.options import Options
from sparrowmq.nameserver.registry import Registry
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfigTable, route_from_json
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import loads
from sparrowmq.transport.client import RemotingClient


def test_every_code_has_a_handler() -> None:
    """The codes of remoting:2.2 that reach a name server, and 28, which it answers as brokers do."""
    clock: Any = None
    handlers = Handlers(Registry(), KeyValues(None), Options(), clock, settings=dict, runtime=dict).table()
    wanted = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313}
    assert handlers.keys() == wanted | {28, 318, 319, 322, 327, 901, 904}


@pytest.mark.parametrize("missing", sorted(BROKER))
def test_registration_without_a_required_field_is_refused(missing: str) -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        fields = {name: text for name, text in BROKER.items() if name != missing}
        answer = await ask(103, body=registration("A", "B"), **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None and missing in answer.remark

    asked(main)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"topicConfigSerializeWrapper":5}', b"\xff"])
def test_invalid_registration_changes_nothing(body: bytes) -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        answer = await ask(103, body=body, **BROKER)
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert loads((await ask(106)).body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}

    asked(main)


def test_crc_of_a_registration_is_checked_if_present() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        body = registration("A", "B")
        wrong = await ask(103, body=body, bodyCrc32="12345", **BROKER)
        assert (wrong.code, wrong.remark) == (1, "crc32 not match")
        right = await ask(103, body=body, bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF), **BROKER)
        assert right.code == 0

    asked(main)


def test_compressed_registration_is_accepted() -> None:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    plain = text(b'{"counter":1,"stateVersion":0,"timestamp":1}') + (2).to_bytes(4, "big")
    plain += text(b"A 3 4 6 SINGLE_TAG") + text(b'B 8 8 4 SINGLE_TAG {"a":"b"}') + text(b"[]")

    async def main(server: NameServer, ask: Ask) -> None:
        for version, body in ((409, plain), (475, plain + bytes(4))):
            fields = {**BROKER, "brokerName": f"b{version}", "brokerAddr": f"10.0.0.{version % 100}:1"}
            answer = await ask(103, body=zlib.compress(body), version=version, compressed="true", **fields)
            assert answer.code == 0
        route = route_from_json((await ask(105, topic="A")).body)
        assert [(q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues] == [(3, 4, 6)] * 2

    asked(main)


def test_answer_to_a_slave_has_its_masters_addresses() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        await ask(103, body=registration("A", "B"), **BROKER)
        slave = {**BROKER, "brokerId": "1", "brokerAddr": "10.0.0.2:10911"}
        answer = await ask(103, body=registration("A", "B"), **slave)
        assert answer.ext == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}

    asked(main)


def test_order_table_can_be_omitted_in_answers_to_brokers() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        await ask(100, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:2")
        told = await ask(103, body=registration("A", "B"), **BROKER)
        assert loads(told.body) == {"table": {"A": "broker-a:2"}}
        assert route_from_json((await ask(105, topic="A")).body).order_topic_conf is None
        switched = await ask(318, body=b"orderMessageEnable=true\nreturnOrderTopicConfigToBroker=false\n")
        assert switched.code == 0
        assert (await ask(103, body=registration("A", "B"), **BROKER)).body == b""
        assert route_from_json((await ask(105, topic="A")).body).order_topic_conf == "broker-a:2"

    asked(main)


def test_route_is_strict_json_for_new_clients_and_on_request() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        await ask(103, body=registration("A", "B"), **BROKER)
        assert b'{"0":' in (await ask(105, topic="A", version=401)).body
        assert b"{0:" in (await ask(105, topic="A", version=400)).body
        assert b'{"0":' in (await ask(105, topic="A", version=0, acceptStandardJsonOnly="true")).body

    asked(main)


def test_zone_of_a_route_counts_only_in_zone_mode() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        await ask(103, body=registration("A", "B"), **BROKER, __ZONE_NAME="east")
        assert (await ask(105, topic="A", __ZONE_MODE="true", __ZONE_NAME="west")).code == 17
        assert (await ask(105, topic="A", __ZONE_MODE="true", __ZONE_NAME="East")).code == 0
        assert (await ask(105, topic="A", __ZONE_MODE="true")).code == 0
        assert (await ask(105, topic="A", __ZONE_NAME="west")).code == 0

    asked(main)


def test_single_topic_is_registered() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        await ask(103, body=registration("A", "B"), **BROKER)
        queue = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
        assert (await ask(217, topic="T", body=json.dumps({"queueDatas": [queue]}).encode())).code == 0
        assert route_from_json((await ask(105, topic="T")).body).queues[0].write_queue_nums == 2
        queue["brokerName"] = "nobody"
        assert (await ask(217, topic="U", body=json.dumps({"queueDatas": [queue]}).encode())).code == 0
        assert (await ask(105, topic="U")).code == 17

    asked(main)


def test_topics_are_listed_by_unit_flags() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        for number, flag in enumerate((0, 1, 2, 3)):
            fields = {**BROKER, "brokerName": f"b{number}", "brokerAddr": f"10.0.0.{number}:1"}
            await ask(103, body=registration(f"T{flag}", f"U{flag}", topic_sys_flag=flag), **fields)
        listed = {
            code: sorted(json.loads((await ask(code)).body)["topicList"])
            for code in (
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            )
        }
        assert listed == {
            311: ["T1", "T3", "U1", "U3"],
            312: ["T2", "T3", "U2", "U3"],
            313: ["T2", "U2"],
        }

    asked(main)


def test_values_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"

    async def put(server: NameServer, ask: Ask) -> None:
        assert (await ask(100, namespace="N", key="k", value="v")).code == 0

    async def get(server: NameServer, ask: Ask) -> None:
        assert (await ask(101, namespace="N", key="k")).ext == {"value": "v"}
        assert (await ask(102, namespace="N", key="k")).code == 0
        assert (await ask(219, namespace="N")).code == ResponseCode.QUERY_NOT_FOUND

    asked(put, kv_path=path)
    asked(get, kv_path=path)


def test_value_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def main(server: NameServer, ask: Ask) -> None:
        answer = await ask(100, namespace="N", key="k", value="v")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None and "nothing was changed" in answer.remark
        assert (await ask(101, namespace="N", key="k")).code == ResponseCode.QUERY_NOT_FOUND

    async def whole() -> None:
        async with asking() as (server, ask):
            server._values.path = tmp_path / "file" / "kvConfig.json"
            await main(server, ask)

    run(whole())


def test_invalid_settings_are_refused() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        for body in (b"orderMessageEnable=perhaps", b"\xff\xfe"):
            answer = await ask(318, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert (await ask(318, body=b"rocketmqHome=/")).code == ResponseCode.NO_PERMISSION
        assert b"orderMessageEnable=false" in (await ask(319)).body

    asked(main)


def test_one_way_heartbeat_gets_no_answer() -> None:
    async def whole() -> None:
        async with asking() as (server, ask):
            client = RemotingClient()
            fields = {name: BROKER[name] for name in ("clusterName", "brokerAddr", "brokerName")}
            await client.notify(server.address, Command(904, ext=fields))
            assert (await ask(904, **fields)).code == 0
            call = asyncio.create_task(client.call(server.address, Command(106), SECONDS))
            assert (await call).code == 0, "the first answer on that connection is the call's"
            await client.close()

    run(whole())


def test_warnings_that_any_client_can_cause_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        for _ in range(5):
            await ask(318, body=b"noSuchName\x1b=1\n")
            await ask(217, body=b'{"queueDatas":[],"brokerDatas":[]}', topic="T")

    asked(main)
    lines = [one.getMessage() for one in caplog.records if one.name == "sparrowmq.nameserver"]
    assert len([one for one in lines if "ignored" in one]) == 1
    assert len([one for one in lines if "not registered" in one]) == 1
    assert "\x1b" not in "".join(lines)


def test_two_brokers_with_the_same_name_and_id_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        body = registration("A", "B")
        for _ in range(3):
            for address in ("10.0.0.1:10911", "10.0.0.2:10911"):
                await ask(103, body=body, **{**BROKER, "brokerAddr": address})

    asked(main)
    lines = [one.getMessage() for one in caplog.records if "brokerName" in one.getMessage()]
    assert len(lines) == 1
    assert "was at 10.0.0.1:10911 and is now at 10.0.0.2:10911" in lines[0]


def test_brokers_that_register_and_leave_repeatedly_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sparrowmq.nameserver")

    async def main(server: NameServer, ask: Ask) -> None:
        for number in range(200):
            name = f"b{number}\x1b" + "x" * 3000
            fields = {"brokerName": name, "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
            await ask(103, **fields, haServerAddr="h:2")
            await ask(104, **fields)

    asked(main)
    lines = [one.getMessage() for one in caplog.records if one.name == "sparrowmq.nameserver"]
    told = [one for one in lines if "registered" in one]
    assert 2 <= len(told) <= 66
    assert max(map(len, told)) < 400
    assert "\x1b" not in "".join(told)


def test_large_registration_does_not_block_others() -> None:
    """Valid and with a wrong checksum; later requests on the connection see it whole."""
    names = [f"T{number:05}" for number in range(3000)]

    async def main(server: NameServer, ask: Ask) -> None:
        body = registration(*names)
        assert len(body) > SMALL_BYTES
        turns, ended = 0, False

        async def others() -> None:
            nonlocal turns
            while not ended:
                turns += 1
                await asyncio.sleep(0)

        watching = asyncio.create_task(others())
        wrong = await ask(103, body=body, **BROKER, bodyCrc32="1")
        assert wrong.remark == "crc32 not match"
        before = turns
        assert (await ask(103, body=body, **BROKER)).code == ResponseCode.SUCCESS
        ended = True
        await watching
        assert turns - before > 10
        assert loads((await ask(206)).body)["topicList"] == names
        assert (await ask(104, **BROKER)).code == ResponseCode.SUCCESS
        assert loads((await ask(206)).body)["topicList"] == []

    asked(main)


def test_broker_that_disconnects_during_its_registration_leaves_nothing() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        client = RemotingClient()
        body = registration(*(f"T{number:05}" for number in range(3000)))
        asking = asyncio.ensure_future(
            client.call(server.address, Command(103, ext=dict(BROKER), body=body), SECONDS)
        )
        await until(lambda: bool(server._handler._dispatcher._running))
        await client.close()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not server._handler._dispatcher._running)
        assert loads((await ask(106)).body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}
        assert loads((await ask(206)).body)["topicList"] == []

    asked(main)


def test_size_of_a_route_in_a_request_is_limited() -> None:
    async def main(server: NameServer, ask: Ask) -> None:
        queues = [{"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}] * 10_000
        answer = await ask(217, topic="T", body=json.dumps({"queueDatas": queues}).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR and "the limit" in (answer.remark or "")

    asked(main)


def test_brokers_with_one_name_and_id_are_told_of_each_other(caplog: pytest.LogCaptureFixture) -> None:
    def body(state: int) -> bytes:
        version = DataVersion(1, state, 1)
        return RegisterBrokerBody([], TopicConfigTable(version, {})).encode()

    async def main(server: NameServer, ask: Ask) -> None:
        other = BROKER | {"brokerAddr": "10.0.0.2:10911"}
        first = await ask(RequestCode.REGISTER_BROKER, body=body(1), **BROKER)
        newer = await ask(RequestCode.REGISTER_BROKER, body=body(2), **other)
        older = await ask(RequestCode.REGISTER_BROKER, body=body(1), **BROKER)
        assert "sparrowRival" not in first.ext
        assert (newer.ext["sparrowRival"], older.ext["sparrowRival"]) == ("10.0.0.1:10911", "10.0.0.2:10911")

    asked(main)
    assert "stays at 10.0.0.2:10911, which has a newer state; 10.0.0.1:10911 claims the same" in caplog.text
