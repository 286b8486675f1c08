"""Masters and slaves over sockets: copies, waiting sends, refusals, consumers at a slave."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import LOG_FILE_BYTES, STORE_HOST, Rig, pull_ext, send_command
from tests.support import about, collect_here, run, until

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.replication import master as master_module
from sparrowmq.broker.replication import slave as slave_module
from sparrowmq.broker.replication.frames import FROM_FIRST_FILE, PacketReader, report
from sparrowmq.broker.replication.master import SlaveLink
from sparrowmq.broker.replication.replication import allowed_addresses
from sparrowmq.broker.server import Broker
from sparrowmq.broker.transactions.half_messages import committed, half_properties, read_half
from sparrowmq.core.errors import ListenError, TransportError
from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.loops.event_loop import new_event_loop
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import loads
from sparrowmq.protocol.pop.records import RequestMode
from sparrowmq.protocol.properties import encode as encode_properties
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.timers.timer_check import TimerCheck
from sparrowmq.transport.client import RemotingClient

FILE_BYTES = 1 << 16
TOPIC = "TopicTest"
DELAYED = "UNIQ_KEY\x01AB12\x02DELAY\x0118\x02"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_module, "RETRY_SECONDS", 0.05)


class Group:
    """A name server, and brokers with the same name."""

    def __init__(self, root: Path, stack: AsyncExitStack) -> None:
        self.root = root
        self.client = RemotingClient()
        self._stack = stack
        self.names = NameServer(host="127.0.0.1", port=0)

    async def start(self) -> None:
        await self.names.start()
        self._stack.push_async_callback(self.names.close)
        self._stack.push_async_callback(self.client.close)

    def settings(self, directory: str, **changes: Any) -> BrokerSettings:
        small: dict[str, Any] = {
            "listen_port": 0,
            "max_hash_slot_num": 1000,
            "max_index_num": 5000,
            "mapped_file_size_commit_log": FILE_BYTES,
            "namesrv_addr": self.names.address,
        }
        return BrokerSettings(store_path_root_dir=self.root / directory, **small | changes)

    async def broker(self, directory: str, **changes: Any) -> Broker:
        """A broker that is closed at the end if it still runs."""
        broker = Broker(self.settings(directory, **changes))
        await broker.start()
        self._stack.push_async_callback(broker.close)
        return broker

    async def master(self, directory: str = "m", **changes: Any) -> Broker:
        return await self.broker(directory, **changes)

    async def slave(self, directory: str = "s", **changes: Any) -> Broker:
        return await self.broker(directory, **{"broker_role": "SLAVE", "broker_id": 1} | changes)

    async def ask(self, broker: Broker, command: Command) -> Command:
        return await self.client.call(broker.address, command, 5.0)

    async def send(self, broker: Broker, body: bytes = b"hello", **fields: Any) -> Command:
        return await self.ask(broker, send_command(body, **fields))

    def files(self, directory: str) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes() for path in sorted((self.root / directory / "commitlog").iterdir())
        }


@asynccontextmanager
async def group(root: Path) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        made = Group(root, stack)
        await made.start()
        yield made


def same(master: Broker, slave: Broker) -> Callable[[], bool]:
    """Whether a slave has the whole log."""
    return lambda: master.parts.store.position == slave.parts.store.position


def bodies(broker: Broker, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    queue = broker.parts.store.queue(topic, queue_id)
    found: list[bytes] = []
    while queue.min_offset + len(found) < queue.max_offset:
        result = broker.parts.store.get_messages(
            queue, queue.min_offset + len(found), max_count=32, max_bytes=1 << 20
        )
        found += [record.body for record in decode_records(b"".join(result.buffers))]
    return found


def forget_first_file(broker: Broker) -> None:
    """Delete the oldest file of a log, as retention does."""
    broker.parts.store.flush()
    broker.parts.store.forget_log_file().path.unlink()


def ask(code: RequestCode, **ext: Any) -> Command:
    return Command(code, ext={name: str(value) for name, value in ext.items()})


def pull(**fields: Any) -> Command:
    return Command(RequestCode.PULL_MESSAGE, ext=dict(pull_ext(**{"sysFlag": 4} | fields)))


class FakeSlave:
    """A socket to the HA port, through which tests send any bytes."""

    def __init__(self, broker: Broker) -> None:
        self.host, _, port = broker.ha_address.rpartition(":")
        self.port = int(port)
        self.packets = PacketReader()

    async def __aenter__(self) -> FakeSlave:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> tuple[int, bytes]:
        """Read this many bytes of the log; returns also where they begin."""
        start, data = -1, b""
        while len(data) < size:
            for piece in self.packets.feed(await asyncio.wait_for(self.reader.read(65536), 5)):
                start = piece.position if start < 0 else start
                data += piece.data
        return start, data

    async def is_closed(self) -> bool:
        try:
            while await asyncio.wait_for(self.reader.read(65536), 5):
                pass
        except ConnectionError:
            pass
        return True


# Copies


def test_slave_has_the_masters_log_queues_and_tables(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            for number in range(200):
                assert (await g.send(master, b"%d" % number + bytes(500), queue_id=number % 2)).code == 0
            await g.ask(
                master,
                Command(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                    body=b'{"groupName":"g","retryMaxTimes":3}',
                ),
            )
            await g.ask(
                master,
                ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    consumerGroup="g",
                    topic=TOPIC,
                    queueId=0,
                    commitOffset=7,
                ),
            )
            mode = RequestMode(consumer_group="g", mode="POP", topic=TOPIC)
            await g.ask(master, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode()))
            slave = await g.slave()
            await until(same(master, slave))
            assert bodies(slave) == bodies(master) and len(bodies(slave)) == 100
            await until(lambda: slave.parts.topics.version == master.parts.topics.version)
            assert slave.parts.topics.configs == master.parts.topics.configs
            await until(lambda: slave.parts.offsets.query(TOPIC, "g", 0) == 7)
            assert slave.parts.groups.configs["g"].retry_max_times == 3
            assert slave.parts.request_modes.get(TOPIC, "g").mode == "POP"
            for _ in range(200):
                await g.send(master, bytes(500))
            await until(same(master, slave))
            await slave.close()
            await master.close()
        assert g.files("s") == g.files("m") and len(g.files("s")) > 2

    run(scenario())


def test_replication_works_on_the_servers_loop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER")
            slave = await g.slave()
            await until(lambda: master.parts.slaves.replicas.in_sync(0) == 2)  # type: ignore[union-attr]
            for _ in range(100):
                assert (await g.send(master, bytes(5000))).code == ResponseCode.SUCCESS
            assert same(master, slave)()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(scenario())


def test_slave_that_was_away_continues_also_from_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the missing part is not cached, so that a thread reads it."""
    monkeypatch.setattr(master_module, "CACHED_BYTES", 1000)
    monkeypatch.setattr(master_module, "READ_BYTES", 10_000)

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            slave = await g.slave()
            await g.send(master)
            await until(same(master, slave))
            await slave.close()
            for _ in range(300):
                await g.send(master, bytes(900))
            slave = await g.slave()
            await until(same(master, slave))
            assert len(bodies(slave)) == 301

    run(scenario())


@pytest.mark.parametrize("place", ["FIRST_FILE", "LAST_FILE"])
def test_empty_slave_begins_at_the_expected_place(tmp_path: Path, place: str) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            for _ in range(200):
                await g.send(master, bytes(900))
            slave = await g.slave(ha_copy_from=place)
            await until(same(master, slave))
            store, last = slave.parts.store, master.parts.store.raw_log.last_file
            assert last >= 2 * FILE_BYTES
            assert store.min_position == (0 if place == "FIRST_FILE" else last)
            queue = store.queue(TOPIC, 0)
            assert queue.max_offset == 200 and (queue.min_offset == 0) == (place == "FIRST_FILE")

    run(scenario())


def test_master_with_deleted_oldest_files_sends_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            for _ in range(200):
                await g.send(master, bytes(900))
            forget_first_file(master)
            slave = await g.slave()
            await until(same(master, slave))
            assert slave.parts.store.min_position == FILE_BYTES

    run(scenario())


def test_slave_killed_between_a_commit_and_its_op_record_starts(tmp_path: Path) -> None:
    """A master's start would write the op record; a slave copies it."""
    rig = Rig(tmp_path / "s")
    rig.make_topic(TOPIC, 1)
    own = half_properties({"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "K"}, TOPIC, 0)
    half = InnerMessage(HALF_TOPIC, 0, b"x", encode_properties(own), 0, 0, rig.clock.ms, STORE_HOST)
    (placed,) = rig.inner.put([half])
    record = rig.inner.read(placed.physical_offset)
    assert record is not None
    rig.inner.put([committed(record, read_half(record.properties))])
    end = rig.store.position
    rig.kill()

    async def scenario() -> None:
        async with group(tmp_path) as g:
            slave = await g.slave("s", mapped_file_size_commit_log=LOG_FILE_BYTES)
            assert slave.parts.store.recovery.commits == (placed.physical_offset,)
            assert slave.parts.store.position == end

    run(scenario())


def test_slave_becomes_master_with_all_messages_and_timers(tmp_path: Path) -> None:
    """By its settings: delivered messages are not delivered again, waiting ones are."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            now = master.parts.clock.now_ms()
            for number in range(5):
                assert (await g.send(master, b"%d" % number)).code == 0
            assert (await g.send(master, b"delayed", properties=DELAYED)).code == 0
            timed = f"UNIQ_KEY\x01AB13\x02TIMER_DELIVER_MS\x01{now + 4000}\x02"
            early = f"UNIQ_KEY\x01AB14\x02TIMER_DELIVER_MS\x01{now + 200}\x02"
            assert (await g.send(master, b"timed", properties=timed)).code == 0
            assert (await g.send(master, b"early", properties=early)).code == 0
            slave = await g.slave()
            await until(lambda: b"early" in bodies(master))
            await until(same(master, slave))
            assert slave.parts.following is not None
            read_time = master.parts.delayed.timers.read_time  # type: ignore[union-attr]
            check = tmp_path / "s" / "config" / "timercheck"

            async def saved() -> bool:
                await slave.parts.following.tables.copy_progress()  # type: ignore[union-attr]
                found = TimerCheck.load(check)
                return found.queue_offset == 2 and found.read_time > read_time

            await until(saved)
            await master.close()
            await slave.close()
            promoted = await g.master("s")
            assert (await g.send(promoted, b"after")).code == 0
            await until(lambda: b"timed" in bodies(promoted))
            found = bodies(promoted)
            assert sorted(found) == sorted([b"0", b"1", b"2", b"3", b"4", b"early", b"timed", b"after"])

    run(scenario())


def test_delivery_progress_is_not_copied_before_the_delivered_messages(tmp_path: Path) -> None:
    """Otherwise a change of the master would lose the old master's last deliveries."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await g.master(), await g.slave()
            await g.send(master, b"delayed", properties=DELAYED)
            await until(same(master, slave))
            assert slave.parts.following is not None
            tables = slave.parts.following.tables
            master.parts.delayed.offsets.set(3, 17)
            behind = 0

            def position() -> int:
                return slave.parts.store.position - behind

            tables._position = position
            behind = 1
            await tables.copy_progress()
            assert slave.parts.delayed.offsets.get(3) == 0
            behind = 0
            await tables.copy_progress()
            assert slave.parts.delayed.offsets.get(3) == 17

    run(scenario())


def test_the_copies_before_the_log_do_not_wait_for_the_log(tmp_path: Path) -> None:
    """A slave that was behind used to begin each time a second late."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await g.master(), await g.slave()
            await g.send(master)
            await until(same(master, slave))
            assert slave.parts.following is not None
            tables = slave.parts.following.tables
            tables._position = lambda: 0
            waits, sleep = [], tables._sleep

            async def noted(seconds: float) -> None:
                waits.append(asyncio.current_task())
                await sleep(seconds)

            tables._sleep = noted
            await tables.copy_all()
            assert asyncio.current_task() not in waits
            await tables.copy_progress()
            assert asyncio.current_task() in waits

    run(scenario())


def test_offsets_are_not_copied_before_the_log_they_depend_on(tmp_path: Path) -> None:
    """POP raises an offset after it stored check points: without them, the messages would be lost to the
    group."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master, slave = await g.master(), await g.slave()
            await g.send(master)
            await until(same(master, slave))
            assert slave.parts.following is not None
            tables, begun = slave.parts.following.tables, master.parts.store.position
            master.parts.offsets.commit(TOPIC, "g", 0, 1)
            behind = 1
            asked = asyncio.Event()

            def position() -> int:
                asked.set()
                return slave.parts.store.position - behind

            tables._position = position
            copying = asyncio.create_task(tables.copy_offsets())
            await asked.wait()
            await asyncio.sleep(0)
            assert slave.parts.offsets.query(TOPIC, "g", 0) is None
            behind = 0
            await copying
            await until(lambda: slave.parts.offsets.saved_at == begun)
            assert slave.parts.offsets.query(TOPIC, "g", 0) == 1
            await g.send(master)
            await until(same(master, slave))
            await slave.close()
            stored = loads((tmp_path / "s" / "config" / "consumerOffset.json").read_bytes())
            assert stored["logPosition"] == begun, "what was handed out since then is read from the log"

    run(scenario())


# Sends that wait


def test_sync_master_reports_a_missing_slave_to_producers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER")
            assert (await g.send(master)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            slave = await g.slave()
            await until(same(master, slave))
            for _ in range(20):
                assert (await g.send(master)).code == ResponseCode.SUCCESS
                assert slave.parts.store.position == master.parts.store.position
            await slave.close()

            async def is_gone() -> bool:
                return (await g.send(master)).code == ResponseCode.SLAVE_NOT_AVAILABLE

            await until(is_gone)

    run(scenario())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_slave_that_does_not_confirm_delays_the_answer(tmp_path: Path, flush: str) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER", slave_timeout=200, flush_disk_type=flush)
            async with FakeSlave(master) as slave:
                slave.say(report(0))
                await until(lambda: master.parts.slaves.links[0].next >= 0)  # type: ignore[union-attr]
                assert (await g.send(master)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                end = master.parts.store.position
                start, data = await slave.read(end)
                assert (start, len(data)) == (0, end)
                second = asyncio.create_task(g.send(master, b"second"))
                _, more = await slave.read(1)
                slave.say(report(end + len(more)))
                assert (await second).code == ResponseCode.SUCCESS

    run(scenario())


def test_one_slave_of_two_is_not_enough_for_three_copies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER", in_sync_replicas=3, min_in_sync_replicas=2)
            refused = await g.send(master)
            assert refused.code == ResponseCode.SYSTEM_ERROR and "minInSyncReplicas" in (refused.remark or "")
            await g.slave("s1")

            async def stored() -> int:
                return (await g.send(master)).code

            await until(lambda: len(master.parts.slaves.links) == 1)  # type: ignore[union-attr]

            async def code_is(code: int) -> bool:
                return await stored() == code

            await until(lambda: code_is(ResponseCode.SLAVE_NOT_AVAILABLE))
            await g.slave("s2", broker_id=2)
            await until(lambda: code_is(ResponseCode.SUCCESS))

    run(scenario())


def test_slave_with_sync_flush_confirms_what_is_on_its_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER")
            slave = await g.slave(flush_disk_type="SYNC_FLUSH")
            await until(lambda: master.parts.slaves.replicas.in_sync(0) == 2)  # type: ignore[union-attr]
            for _ in range(5):
                assert (await g.send(master)).code == ResponseCode.SUCCESS
                assert slave.parts.store.flushed_position == master.parts.store.position

    run(scenario())


def test_reconnected_slave_confirms_what_is_on_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER")
            slave = await g.slave(flush_disk_type="SYNC_FLUSH")
            await until(lambda: master.parts.slaves.replicas.in_sync(0) == 2)  # type: ignore[union-attr]
            assert (await g.send(master)).code == ResponseCode.SUCCESS
            may_flush, flush = threading.Event(), slave.parts.store.flush
            end = slave.parts.store.position

            def flush_later() -> int:
                may_flush.wait()
                return flush()

            monkeypatch.setattr(slave.parts.store, "flush", flush_later)
            sending = asyncio.create_task(g.send(master))
            await until(lambda: slave.parts.store.position == 2 * end)
            assert slave.parts.following is not None
            link = slave.parts.following.follower.link
            assert link is not None
            link.close(TransportError("the connection broke"))
            done, _ = await asyncio.wait([sending], timeout=0.5)
            may_flush.set()
            assert not done
            assert (await sending).code == ResponseCode.SUCCESS

    run(scenario())


# Strangers at the HA port


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">q", 10**9),
        struct.pack(">q", -7),
        report(0) + report(10**9),
    ],
)
def test_invalid_slave_connection_is_closed(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER")
            async with FakeSlave(master) as slave:
                slave.say(said[:8])
                slave.say(said[8:])
                assert await slave.is_closed()
            await until(lambda: not master.parts.slaves.links)  # type: ignore[union-attr]
            assert (await g.send(master)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert "disconnected slave 127.0.0.1" in caplog.text

    run(scenario())


def test_slave_with_a_false_position_confirms_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(broker_role="SYNC_MASTER", slave_timeout=300)
            async with FakeSlave(master) as slave:
                slave.say(report(0))
                await until(lambda: master.parts.slaves.links[0].next >= 0)  # type: ignore[union-attr]
                slave.say(report(1 << 40))
                assert await slave.is_closed()
            assert (await g.send(master)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            async with FakeSlave(master) as slave:
                slave.say(report(0))
                end = master.parts.store.position
                await slave.read(end)
                slave.say(report(end))
                await until(lambda: master.parts.slaves.links[0].replica.position == end)  # type: ignore[union-attr]
                slave.say(report(end - 1))
                assert await slave.is_closed()

    run(scenario())


def test_silent_connection_is_closed_and_an_idle_one_gets_heartbeats(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(ha_send_heartbeat_interval=100, ha_housekeeping_interval=500)
            async with FakeSlave(master) as slave:
                assert await slave.is_closed()
            async with FakeSlave(master) as slave:
                slave.say(report(FROM_FIRST_FILE))
                data = await asyncio.wait_for(slave.reader.readexactly(24), 5)
                assert data == struct.pack(">qi", 0, 0) * 2
                assert await slave.is_closed()

    run(scenario())


def test_excess_connections_and_other_addresses_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_module, "SLAVES_MAX", 1)

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            async with FakeSlave(master), FakeSlave(master) as second:
                assert await second.is_closed()
            closed = await g.master("other", broker_name="b", ha_allowed_addresses="10.0.0.*;10.1.0.1")
            async with FakeSlave(closed) as slave:
                assert await slave.is_closed()

    run(scenario())


def test_a_slave_that_was_accepted_when_its_master_closes_is_disconnected(tmp_path: Path) -> None:
    """The loop accepts a connection some turns before it tells the protocol, and `close` may come between."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            slaves = master.parts.slaves
            assert slaves is not None
            await master.close()
            ours, theirs = socket.socketpair()
            with theirs:
                theirs.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(lambda: SlaveLink(slaves), ours)
                async with asyncio.timeout(5.0):
                    assert await loop.sock_recv(theirs, 1) == b""
            assert slaves.links == ()

    run(scenario())


@pytest.mark.parametrize(
    ("given", "may"),
    [
        ({}, True),
        ({"authentication_enabled": True}, False),
        ({"tls_server_mode": "enforcing"}, False),
        ({"tls_server_mode": "enforcing", "ha_allowed_addresses": "10.0.0.*"}, True),
    ],
)
def test_only_local_slaves_copy_the_log_of_a_broker_with_access_control(
    given: dict[str, Any],
    may: bool,
) -> None:
    allowed = allowed_addresses(BrokerSettings(**given))
    assert allowed("10.0.0.7") is may
    assert allowed("127.0.0.1") is ("ha_allowed_addresses" not in given)


def test_slow_slave_costs_bounded_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master(mapped_file_size_commit_log=1 << 24)
            async with FakeSlave(master) as slave:
                slave.say(report(0))
                for _ in range(10):
                    await g.send(master, bytes(1 << 20))
                (link,) = master.parts.slaves.links  # type: ignore[union-attr]
                kept = link._transport.get_write_buffer_size()  # type: ignore[union-attr]
                assert kept <= master_module.UNSENT_BYTES_MAX + master_module.READ_BYTES
                assert link.next < master.parts.store.position
                start, data = await slave.read(master.parts.store.position)
                assert (start, len(data)) == (0, master.parts.store.position)

    run(scenario())


def test_used_replication_port_prevents_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            first = await g.master()
            port = int(first.ha_address.rpartition(":")[2])
            with pytest.raises(ListenError, check=about(value=errno.EADDRINUSE)):
                await g.master("other", broker_name="b", ha_listen_port=port)

    run(scenario())


# Slaves that must not follow


async def refused(g: Group, slave: Broker, text: str, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: text in caplog.text)
    assert slave.parts.following is not None and not slave.parts.following.follower.is_following


def test_slave_with_more_than_its_master_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            former = await g.master("s")
            for _ in range(3):
                await g.send(former)
            await former.close()
            master = await g.master()
            await g.send(master)
            slave = await g.slave()
            await refused(g, slave, "bytes that the master lacks", caplog)
            assert len(bodies(slave)) == 3

    run(scenario())


@pytest.mark.parametrize(
    ("own", "others"),
    [([b"hello"], [b"other", b"other", b"other"]), ([b"a", b"hello"], [b"other", b"b", b"c"])],
    ids=["same place", "no record begins there"],
)
def test_slave_with_a_diverged_log_is_refused(
    own: list[bytes], others: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when a record ends at the same place in both logs, where the copy would continue."""

    async def scenario() -> None:
        async with group(tmp_path) as g:
            former = await g.master("s")
            for body in own:
                await g.send(former, body)
            await former.close()
            master = await g.master()
            for body in others:
                await g.send(master, body)
            slave = await g.slave()
            await refused(g, slave, "their logs have diverged", caplog)
            assert bodies(slave) == own

    run(scenario())


def test_slave_that_was_away_too_long_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            slave = await g.slave()
            await until(same(master, slave))
            await slave.close()
            for _ in range(200):
                await g.send(master, bytes(900))
            forget_first_file(master)
            slave = await g.slave()
            await refused(g, slave, "away for longer than the master keeps its log", caplog)
            async with FakeSlave(master) as fake:
                fake.say(report(slave.parts.store.position))
                assert await fake.is_closed()
            assert "it was away for longer than the log is kept" in caplog.text

    run(scenario())


def test_slave_with_files_of_another_size_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            await g.send(await g.master())
            slave = await g.slave(mapped_file_size_commit_log=2 * FILE_BYTES)
            await refused(g, slave, "its mappedFileSizeCommitLog is 65536", caplog)
            assert slave.parts.store.position == 0

    run(scenario())


def test_slave_without_a_name_server_uses_the_configured_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            slave = await g.slave(namesrv_addr="", ha_master_address=master.ha_address)
            await until(same(master, slave))
            assert bodies(slave) == [b"hello"]

    run(scenario())


def test_slave_reports_that_its_master_is_no_master(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(shout, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with group(tmp_path) as g:
            await g.slave(namesrv_addr="", ha_master_address=f"127.0.0.1:{port}")
            await until(lambda: "does not belong to the HA protocol" in caplog.text)
        server.close()

    run(scenario())


# Requests to a slave


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (send_command(), ResponseCode.SYSTEM_BUSY),
        (ask(RequestCode.UPDATE_AND_CREATE_TOPIC), ResponseCode.SYSTEM_ERROR),
        (ask(RequestCode.END_TRANSACTION), ResponseCode.SLAVE_NOT_AVAILABLE),
        (ask(RequestCode.RECALL_MESSAGE), ResponseCode.SLAVE_NOT_AVAILABLE),
        (ask(RequestCode.CONSUMER_SEND_MSG_BACK), ResponseCode.SYSTEM_ERROR),
        (ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET), ResponseCode.SYSTEM_ERROR),
        (pull(), ResponseCode.SYSTEM_BUSY),
    ],
    ids=lambda value: str(value.code) if isinstance(value, Command) else str(int(value)),
)
def test_slave_refuses_writes(tmp_path: Path, command: Command, code: int) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            slave = await g.slave()
            await until(same(master, slave))
            assert (await g.ask(slave, command)).code == code
            assert same(master, slave)()

    run(scenario())


def test_slave_answers_pulls_and_sends_consumers_back_while_the_master_is_available(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            slave = await g.slave(slave_read_enable=True)
            await until(same(master, slave))
            found = await g.ask(slave, pull())
            assert [record.body for record in decode_records(found.body)] == [b"hello"]
            assert found.ext["suggestWhichBrokerId"] == "0"
            nothing = await g.ask(slave, pull(queueOffset=1))
            assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert nothing.ext["suggestWhichBrokerId"] == "0"
            await master.close()
            await until(lambda: not slave.parts.following.follower.is_following)  # type: ignore[union-attr]
            assert (await g.ask(slave, pull(queueOffset=1))).code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_held_pull_at_a_slave_is_woken_by_the_copy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            await g.send(master)
            slave = await g.slave(slave_read_enable=True)
            await until(same(master, slave))
            await master.close()
            await until(lambda: not slave.parts.following.follower.is_following)  # type: ignore[union-attr]
            held = asyncio.create_task(
                g.ask(slave, pull(queueOffset=1, sysFlag=6, suspendTimeoutMillis=15000))
            )
            await until(lambda: slave.parts.pulling.held == 1)
            again = await g.master()
            await g.send(again, b"second")
            found = await held
            assert [record.body for record in decode_records(found.body)] == [b"second"]

    run(scenario())


def test_both_sides_report_the_progress_of_the_copy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as g:
            master = await g.master()
            slave = await g.slave()
            await g.send(master)
            await until(same(master, slave))
            end = master.parts.store.position
            (link,) = master.parts.slaves.links  # type: ignore[union-attr]
            await until(lambda: link.replica.position == end)
            told = loads((await g.ask(master, ask(RequestCode.GET_BROKER_HA_STATUS))).body)
            assert told["master"] and told["masterCommitLogMaxOffset"] == end and told["inSyncSlaveNums"] == 1
            (one,) = told["haConnectionInfo"]
            assert (one["slaveAckOffset"], one["diff"], one["inSync"]) == (end, 0, True)
            told = loads((await g.ask(slave, ask(RequestCode.GET_BROKER_HA_STATUS))).body)
            assert not told["master"] and told["haClientRuntimeInfo"]["maxOffset"] == end
            assert told["haClientRuntimeInfo"]["masterAddr"] == master.ha_address

    run(scenario())


def figures(broker: Broker) -> dict[str, list[float]]:
    """Values of the metrics by name."""
    into = Exposition(1000)
    collect_here(broker.operated.collect(into))
    return {
        family.name: [value for _, value in family.points if isinstance(value, int | float)]
        for family in into.families
    }


def test_metrics_show_how_far_slaves_are_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with group(tmp_path) as it:
            master = await it.master()
            assert figures(master)["sparrow_replication_slaves"] == [0]
            assert "sparrow_replication_connected" not in figures(master)
            slave = await it.slave()
            await it.send(master)
            await until(same(master, slave))
            await until(lambda: figures(master)["sparrow_replication_behind_bytes"] == [0])
            found = figures(master)
            assert (found["sparrow_replication_slaves"], found["sparrow_replication_in_sync"]) == ([1], [2])
            assert found["sparrow_replication_behind_seconds"] == [0]
            assert figures(slave)["sparrow_replication_connected"] == [1]
            assert "sparrow_replication_slaves" not in figures(slave)

            (link,) = master.parts.slaves.links if master.parts.slaves is not None else ()
            monkeypatch.setattr(link, "send", lambda: None)  # the connection takes nothing more
            end = master.parts.store.position
            monkeypatch.setattr(master.parts.clock, "now_ms", lambda: 1_000_000)
            await it.send(master)
            monkeypatch.setattr(master.parts.clock, "now_ms", lambda: 1_007_500)
            found = figures(master)
            assert found["sparrow_replication_behind_bytes"] == [master.parts.store.position - end]
            assert found["sparrow_replication_behind_seconds"] == [7.5]
            monkeypatch.undo()
            await slave.close()
            await until(lambda: not figures(master)["sparrow_replication_behind_bytes"])

    run(main())
