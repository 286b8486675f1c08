"""Damage on the disk: found by whole servers at their next start, cut or left out, reported, never served."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.faults import LOG_BYTES, TOPIC, Entry, Place, create, records, send, stored
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.record import StoredRecord

pytestmark = pytest.mark.crash

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
COUNT = 60
BODY_SIZE_AT, BODY_AT = 84, 88
FIRST_FILE = "0" * 20

Filled = dict[bool, tuple[Place, list[Entry], list[StoredRecord]]]
"""By whether the servers were killed: the place, what was acknowledged, its records."""

Damage = Callable[[StoredRecord], tuple[int, bytes]]
"""Where in a record's bytes something is written, and what."""

DAMAGES: dict[str, Damage] = {
    "size": lambda record: (0, b"\x00\x00\x7f\xff"),
    "size 0": lambda record: (0, bytes(4)),
    "magic": lambda record: (4, b"\xde\xad\xbe\xef"),
    "crc": lambda record: (8, b"\x01\x02\x03\x04"),
    "queue offset": lambda record: (20, bytes(7) + b"\x01"),
    "physical offset": lambda record: (28, bytes(7) + b"\x01"),
    "body size": lambda record: (BODY_SIZE_AT, b"\x00\x00\x10\x00"),
    "body": lambda record: (BODY_AT + 5, b"\xff"),
    "last half zero": lambda record: (record.size // 2, bytes(record.size - record.size // 2)),
    "all zero": lambda record: (0, bytes(record.size)),
}


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"body-%05d-" % number + b"x" * 200 for number in range(first, first + count)]


async def send_all(namesrv: str, messages: list[bytes]) -> list[Entry]:
    async with aio.Producer("p", namesrv=namesrv, retries=0) as producer:
        return await send(producer, messages)


def fill(place: Place, *, kill: bool) -> tuple[list[Entry], list[StoredRecord]]:
    """Servers store messages and end; what was acknowledged, and the records of it."""
    servers = place.servers()
    servers.start()
    try:
        run(create(servers.nameserver_address))
        entries = run(send_all(servers.nameserver_address, bodies(COUNT)))
        found = run(records(servers.nameserver_address))
    finally:
        servers.kill() if kill else servers.stop()
    assert len(found) == COUNT
    return entries, found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Two filled stores to copy from: of servers that were killed, and of some that were stopped."""
    made = {}
    for kill in (True, False):
        place = Place(tmp_path_factory.mktemp("filled") / "place")
        made[kill] = (place, *fill(place, kill=kill))
    return made


def copied(source: Place, target: Path) -> Place:
    shutil.copytree(source.root, target)
    return Place(target)


def damage(place: Place, record: StoredRecord, what: Damage) -> None:
    at, data = what(record)
    with (place.store / "commitlog" / FIRST_FILE).open("r+b") as file:
        file.seek(record.physical_offset + at)
        assert file.read(len(data)) != data
        file.seek(record.physical_offset + at)
        file.write(data)


async def consumed(namesrv: str, group: str, count: int) -> set[tuple[int, bytes]]:
    """What a group of push consumers gets from the beginning: `count` messages, and some time for more."""
    got: set[tuple[int, bytes]] = set()
    consumer = aio.PushConsumer(group, namesrv=namesrv, consume_from="first")
    consumer.subscribe(TOPIC, handler=lambda message: got.add((message.queue_offset, message.body)))
    async with consumer:
        await until(lambda: len(got) >= count and not sum(consumer.lag.values()))
    return got


SAMPLE = [
    *(("killed", what) for what in ("size", "queue offset", "body", "last half zero", "all zero")),
    *(("stopped", what) for what in ("magic", "crc", "body size", "body")),
]
CASES = [(end, what) for end in ("killed", "stopped") for what in DAMAGES] if LONG else SAMPLE


@pytest.mark.parametrize(("end", "what"), CASES)
def test_a_damaged_last_record_is_cut_and_all_before_it_served(
    tmp_path: Path, filled: Filled, end: str, what: str
) -> None:
    kill = end == "killed"
    source, entries, found = filled[kill]
    place = copied(source, tmp_path / "place")
    damage(place, found[-1], DAMAGES[what])
    with place.servers() as servers:
        assert run(stored(servers.nameserver_address)) == entries[:-1]
        more = run(send_all(servers.nameserver_address, bodies(3, first=COUNT)))
        # a record that only says another offset is whole: its place stays empty when nothing was rescanned
        first = COUNT if what == "queue offset" and not kill else COUNT - 1
        assert [entry[2] for entry in more] == [first, first + 1, first + 2]
        assert run(stored(servers.nameserver_address)) == entries[:-1] + more
    if what != "all zero":  # zeros are what a log that ends there looks like
        assert re.search(r"were cut|damaged|gets no queue entry", place.log), place.log


@pytest.mark.parametrize(("end", "what"), CASES)
def test_a_damaged_record_in_the_middle_is_reported_and_never_served_as_valid(
    tmp_path: Path, filled: Filled, end: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, entries, found = filled[end == "killed"]
    place = copied(source, tmp_path / "place")
    broken = COUNT // 2
    damage(place, found[broken], DAMAGES[what])
    good = {(offset, body) for _, _, offset, body in entries if offset != broken}
    with place.servers() as servers:
        namesrv = servers.nameserver_address
        assert run(consumed(namesrv, "readers", COUNT - 1)) == good
        more = run(send_all(namesrv, bodies(3, first=COUNT)))
        assert [entry[2] for entry in more] == [COUNT, COUNT + 1, COUNT + 2]
        good |= {(offset, body) for _, _, offset, body in more}
        assert run(consumed(namesrv, "more-readers", COUNT + 2)) == good
    reported = place.log + "\n".join(caplog.messages)
    assert re.search(rf"offset {broken}\b|gets no queue entry", reported), reported


def test_a_log_file_cut_short_is_named_with_the_next_step(tmp_path: Path, filled: Filled) -> None:
    source, entries, found = filled[True]
    place = copied(source, tmp_path / "place")
    path = place.store / "commitlog" / FIRST_FILE
    last = found[-1]
    os.truncate(path, last.physical_offset + last.size - 10)
    servers = place.servers()
    with pytest.raises(SparrowError) as caught:
        servers.start()
    text = str(caught.value)
    assert f"{path} has {last.physical_offset + last.size - 10} bytes" in text
    step = re.search(r"truncate -s (\d+) (\S+)", text)
    assert step is not None and (int(step[1]), step[2]) == (LOG_BYTES, str(path))
    os.truncate(step[2], int(step[1]))
    with place.servers() as servers:
        assert run(stored(servers.nameserver_address)) == entries[:-1]
    assert "of an unfinished write after" in place.log


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"])
def test_a_damaged_table_gives_way_to_its_backup_or_stops_the_start(
    tmp_path: Path, filled: Filled, name: str
) -> None:
    place = copied(filled[False][0], tmp_path / "place")
    config = place.store / "config"
    path, backup = config / name, config / f"{name}.bak"
    good = path.read_bytes() if path.exists() else b"{}"
    backup.write_bytes(good)
    path.write_bytes(good[: len(good) // 2] + b"\xff")
    with place.servers() as servers:
        assert len(run(stored(servers.nameserver_address))) == COUNT
    assert f"{path}" in place.log and "the backup is used instead" in place.log
    for text in (b"{not json", b'{"topicConfigTable":5,"subscriptionGroupTable":5,"offsetTable":5}'):
        path.write_bytes(text)
        backup.unlink(missing_ok=True)
        with pytest.raises(SparrowError) as caught:
            place.servers().start()
        assert str(path) in str(caught.value)
        assert "remove it" in str(caught.value)
    path.unlink()
    with place.servers() as servers:
        run(create(servers.nameserver_address))
        assert len(run(stored(servers.nameserver_address))) == COUNT


def test_queue_files_that_are_gone_are_made_again(tmp_path: Path, filled: Filled) -> None:
    source, entries, _ = filled[False]
    place = copied(source, tmp_path / "place")
    for path in sorted((place.store / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with place.servers() as servers:
        assert run(stored(servers.nameserver_address)) == entries
    assert f"{TOPIC}/0" in place.log


def test_a_damaged_queue_file_is_put_right(tmp_path: Path, filled: Filled) -> None:
    source, entries, _ = filled[True]
    place = copied(source, tmp_path / "place")
    path = place.store / "consumequeue" / TOPIC / "0" / FIRST_FILE
    with path.open("r+b") as file:
        file.seek(20 * 20)
        file.write(os.urandom(20 * 3))
    with place.servers() as servers:
        assert run(stored(servers.nameserver_address)) == entries


def test_damage_in_the_middle_does_not_hold_up_those_who_wait(tmp_path: Path, filled: Filled) -> None:
    """A consumer that stands behind the damage goes on with new messages."""
    source, _, found = filled[True]
    place = copied(source, tmp_path / "place")
    damage(place, found[10], DAMAGES["body"])

    async def main(namesrv: str) -> None:
        async with (
            aio.PullConsumer(namesrv=namesrv) as consumer,
            aio.Producer("p", namesrv=namesrv) as producer,
        ):
            (queue,) = await consumer.queues(TOPIC)
            waiting = asyncio.create_task(consumer.pull(queue, COUNT, wait=15))
            await producer.send(aio.Message(TOPIC, b"new"))
            assert [message.body for message in (await waiting).messages] == [b"new"]

    with place.servers() as servers:
        run(main(servers.nameserver_address))
