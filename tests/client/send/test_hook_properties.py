"""Properties that hooks add to encoded messages."""

from __future__ import annotations

import json

import pytest

from sparrowmq.client.send.encoding import Outgoing, outgoing_batch, outgoing_encoded_batch, outgoing_single
from sparrowmq.client.send.hook_properties import with_properties
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import Message
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import decode_batch, encode_batch

LIMIT = 10_000


def members(outgoing: Outgoing) -> list[dict[str, str]]:
    return [properties.decode(own) for _, _, own in decode_batch(outgoing.body)]


def test_hook_replaces_only_the_users_property_of_the_same_name() -> None:
    own = {"xname": "1", "name": "1", "ü": 'é"', "last": "2"}
    outgoing = outgoing_single(Message("T", b"x", properties=own), "ID", 0, 1000)
    text = json.loads(with_properties(outgoing, {"name": "9", "ü": "n", "new": "3"}, LIMIT).properties)
    assert text.startswith("UNIQ_KEY\x01ID\x02WAIT\x01true\x02")
    assert text.count("name\x01") == 2, "another one's name may end alike"
    found = properties.decode(text.encode())
    assert {name: found[name] for name in (*own, "new")} == {**own, "name": "9", "ü": "n", "new": "3"}


@pytest.mark.proves("client:B-47")
def test_every_message_of_a_batch_gets_the_hooks_properties() -> None:
    own = {"xname": "1", "name": "é"}
    messages = [Message("T", b"a", properties=own), Message("T", b"b", flag=7)]
    outgoing = outgoing_batch(messages, ["A", "B"], "K", 5, LIMIT)
    made = with_properties(outgoing, {"name": "9", "new": "ü"}, LIMIT)
    first, second = members(made)
    assert {name: first[name] for name in ("UNIQ_KEY", "xname", "name", "new")} == {
        "UNIQ_KEY": "A",
        "xname": "1",
        "name": "9",
        "new": "ü",
    }
    assert (second["UNIQ_KEY"], second["name"], second["new"]) == ("B", "9", "ü")
    assert [item[:2] for item in decode_batch(made.body)] == [(0, b"a"), (7, b"b")]
    assert (made.properties, made.message_id, made.is_batch) == (outgoing.properties, "A,B", True)
    assert members(outgoing)[0]["name"] == "é", "another try begins from what it was"


@pytest.mark.parametrize(("own", "kept"), [(b"", {}), (b"a\x011", {"a": "1"}), (b"a\x011\x02", {"a": "1"})])
def test_encoded_batch_gets_the_hooks_properties_too(own: bytes, kept: dict[str, str]) -> None:
    body = encode_batch([(0, b"x", own), (0, b"y", own)])
    made = with_properties(outgoing_encoded_batch("T", body, 2, "K", 5, LIMIT), {"new": "3"}, LIMIT)
    assert members(made) == [{**kept, "new": "3"}] * 2


def test_batch_without_room_is_sent_without_them() -> None:
    """A hook must not make a send fail that would succeed without it."""
    outgoing = outgoing_batch([Message("T", b"x" * 900)], ["A"], "K", 5, 1000)
    room = len(outgoing.body) + len("new\x013\x02")
    assert with_properties(outgoing, {"new": "3"}, room - 1) is outgoing
    assert members(with_properties(outgoing, {"new": "3"}, room))[0]["new"] == "3"


def test_message_with_too_long_properties_is_sent_without_them() -> None:
    long = Message("T", b"a", properties={"k": "v" * 32_700})
    outgoing = outgoing_batch([long, Message("T", b"b")], ["A", "B"], "K", 5, 100_000)
    first, second = members(with_properties(outgoing, {"new": "3" * 60}, 100_000))
    assert "new" not in first and second["new"] == "3" * 60


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("KEYS", "1", "RocketMQ's own"), (" ", "1", "blank"), ("a", "", "blank"), ("a", "\x02", "0x01")],
)
@pytest.mark.parametrize("batch", [False, True])
def test_illegal_properties_are_refused(name: str, value: str, text: str, batch: bool) -> None:
    message = Message("T", b"x")
    single = outgoing_single(message, "A", 5, LIMIT)
    outgoing = outgoing_batch([message], ["A"], "K", 5, LIMIT) if batch else single
    with pytest.raises(InvalidMessageError, match=text):
        with_properties(outgoing, {name: value}, LIMIT)
