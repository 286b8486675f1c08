"""Every record of real commit logs of Apache RocketMQ, against what their clients were told and saw."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache

import pytest
from tests.protocol import archives

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol import properties
from sparrowmq.protocol.record import (
    RECORD_MAGIC_V2,
    StoredRecord,
    check_record,
    decode_record,
    decode_records,
    encode_record,
    to_message,
)
from sparrowmq.protocol.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

BROKER = "broker-a"
ARCHIVES = [
    (archives.CLEAN_5, 3626, 6, 2807183),
    (archives.KILLED_5, 3749, 6, 2902859),
    (archives.CLEAN_4, 3486, 0, 2604639),
]
NAMES = [name for name, *_ in ARCHIVES]


def walk(name: str) -> Iterator[tuple[int, bytes]]:
    """(physical offset, bytes) of every record; only zeros follow the last one."""
    files = archives.commit_log(name)
    for base, data in files:
        position = 0
        while position < len(data):
            try:
                size = check_record(memoryview(data), position, len(data))
            except RecordError:
                rest = data[position:] + b"".join(later for start, later in files if start > base)
                assert not rest.strip(b"\0"), f"{name}: nothing but zeros may follow {base + position}"
                return
            if size == 0:
                break
            yield base + position, data[position : position + size]
            position += size


@cache
def records(name: str) -> dict[int, StoredRecord]:
    """Every record by physical offset."""
    return {offset: decode_record(data, check_crc=True) for offset, data in walk(name)}


@pytest.mark.parametrize(("name", "count", "in_v2", "end"), ARCHIVES)
def test_the_whole_log_is_walked(name: str, count: int, in_v2: int, end: int) -> None:
    found = records(name)
    assert len(found) == count
    assert sum(record.magic == RECORD_MAGIC_V2 for record in found.values()) == in_v2
    last = max(found)
    assert last + found[last].size == end
    assert all(record.physical_offset == offset for offset, record in found.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_written_back_byte_for_byte(name: str) -> None:
    for offset, data in walk(name):
        record = records(name)[offset]
        again = encode_record(
            topic=record.topic.encode(),
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            body=record.body,
            properties=record.properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_timestamp=record.store_timestamp,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
        )
        assert again == data


@pytest.mark.parametrize("name", NAMES)
def test_every_message_a_client_saw_is_in_the_log_as_it_saw_it(name: str) -> None:
    seen = archives.ledger(name, "seen")
    assert len(seen) > 3000
    for line in seen:
        message = to_message(records(name)[line["offset"]], BROKER)
        ours = {
            "topic": message.topic,
            "queueId": message.queue.queue_id,
            "queueOffset": message.queue_offset,
            "offsetMsgId": message.offset_message_id,
            "size": message.store_size,
            "sysFlag": message.sys_flag,
            "flag": message.flag,
            "bodyCRC": records(name)[line["offset"]].body_crc,
            "born": message.born_timestamp,
            "store": message.store_timestamp,
            "bornHost": message.born_host.partition(":")[0],
            "reconsume": message.reconsume_times,
            "prepared": message.prepared_transaction_offset,
            "bodyLen": len(message.body),
            "bodySha1": hashlib.sha1(message.body).hexdigest(),
            "props": message.properties,
        }
        assert ours == {member: line[member] for member in ours}


@pytest.mark.parametrize("name", NAMES)
def test_every_acknowledged_send_is_in_the_log(name: str) -> None:
    by_offset_id = {
        to_message(record, BROKER, decompress=False).offset_message_id: record
        for record in records(name).values()
    }
    sends = [line for line in archives.ledger(name, "send") if line.get("offsetMsgId")]
    assert len(sends) > 2800
    for line in sends:
        message = to_message(by_offset_id[line["offsetMsgId"]], BROKER)
        assert hashlib.sha1(message.body).hexdigest() == line["bodySha1"]
        assert message.flag == line.get("flag", 0)
        assert message.tags == line.get("tags")
        assert message.properties.items() >= line.get("props", {}).items()


@pytest.mark.parametrize("name", NAMES)
def test_queue_offsets_have_no_gap(name: str) -> None:
    queues: dict[tuple[str, int], list[int]] = {}
    for record in records(name).values():
        if record.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            queues.setdefault((record.topic, record.queue_id), []).append(record.queue_offset)
    assert len(queues) > 40
    for offsets in queues.values():
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("name", NAMES)
def test_properties_of_real_records_are_found_as_decoded(name: str) -> None:
    for record in records(name).values():
        assert len(record.properties) <= PROPERTIES_BYTES_MAX
        values = properties.decode(record.properties)
        for key in ("UNIQ_KEY", "KEYS", "TAGS", "DELAY"):
            found = properties.find(record.properties, key.encode())
            assert (found.decode() if found else None) == values.get(key)


@pytest.mark.parametrize("name", NAMES)
def test_the_records_of_a_file_are_read_as_an_answer_to_a_pull(name: str) -> None:
    base, data = archives.commit_log(name)[0]
    parts = [part for offset, part in walk(name) if offset < base + len(data)]
    assert decode_records(b"".join(parts)) == [
        record for offset, record in records(name).items() if offset < base + len(data)
    ]
