"""Histories as lines of JSON."""

from __future__ import annotations

import json

import pytest
from tests.torture.histories import clean

from sparrowmq.torture.events import FaultNote, SendInvoked, decode_lines, encode_line


def test_events_come_back_from_their_lines() -> None:
    events = [*clean().events, FaultNote(at=1.5, client="faults", text='kill "broker-1"')]
    lines = b"".join(encode_line(event) for event in events)
    assert list(decode_lines(lines.splitlines())) == events
    assert list(decode_lines(lines.decode().splitlines())) == events


def test_a_line_is_what_other_languages_write() -> None:
    line = encode_line(SendInvoked(at=2.25, client="p", id="p-1", once=True))
    assert json.loads(line) == {"event": "send", "at": 2.25, "client": "p", "id": "p-1", "once": True}
    assert list(decode_lines(['{"id":"p-1","event":"send","client":"p","at":2.25,"once":true}', ""])) == [
        SendInvoked(at=2.25, client="p", id="p-1", once=True)
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        '{"event":"nothing","at":1,"client":"p"}',
        '{"event":"send","at":1,"client":"p"}',
        '{"event":"send","at":"x","client":"p","id":"a"}',
    ],
)
def test_a_bad_line_is_refused_with_its_number(bad: str) -> None:
    good = encode_line(SendInvoked(at=1.0, client="p", id="a"))
    with pytest.raises(ValueError, match=r"^line 2: "):
        list(decode_lines([good, bad]))
