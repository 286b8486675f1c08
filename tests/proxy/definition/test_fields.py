"""The number of counted fields matches what the parser finds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.proxy.rig import message

from sparrowmq.proxy.definition.fields import MessageFields, count_fields
from sparrowmq.proxy.definition.messages import methods, v2


def counted(data: bytes, kind: Any, most: int = 10_000) -> int:
    steps = count_fields(data, MessageFields(kind.DESCRIPTOR), most)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: int = end.value
            return found


def fields_of(one: Any) -> int:
    """The number of fields of a parsed message as it was encoded, with maps and nested messages."""
    count = 0
    for field, found in one.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            count += 3 * len(found)
        else:
            for each in found if field.is_repeated else [found]:
                count += 1 + (fields_of(each) if field.message_type is not None else 0)
    return count


def test_fields_of_a_batch_are_counted() -> None:
    request = v2.SendMessageRequest()
    for number in range(5):
        made = message("topic", b"x" * 3000, number=number, keys=["a", "b"], queue_id=300)
        made.user_properties["name"] = "value"
        request.messages.append(made)
    assert counted(request.SerializeToString(), v2.SendMessageRequest) == fields_of(request)


def test_counting_stops_at_the_limit() -> None:
    assert counted(b"\x0a\x00" * 5000, v2.SendMessageRequest, 100) == 101


@pytest.mark.parametrize(
    "damaged", [b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x09\1", b"\x0a\x05\x0a\x7f"]
)
def test_counting_stops_at_damaged_messages(damaged: bytes) -> None:
    assert 1 <= counted(damaged, v2.SendMessageRequest) <= 2


def test_fields_before_damage_are_counted() -> None:
    many = b"\x1a\x00" * 200
    message = b"\x0a" + bytes((0x80 | len(many) & 0x7F, len(many) >> 7)) + many
    assert counted(message + b"\x0a\x01\x0a", v2.SendMessageRequest, 10_000) >= 200
    assert counted(message + b"\x0a", v2.SendMessageRequest, 10_000) >= 200


def test_every_method_can_be_counted() -> None:
    for method in methods():
        assert counted(b"", method.request) == 0
