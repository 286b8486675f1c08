"""Answers that wait are written in order once released, later answers at once."""

from __future__ import annotations

from tests.broker.rig import connection

from sparrowmq.broker.base.held_answers import HeldAnswers
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command


def test_answers_wait_until_they_are_released() -> None:
    client = connection(50_001)
    held = HeldAnswers(client)
    assert held.born_host == client.born_host
    for opaque in (1, 2):
        held.send(Command(0, opaque, FLAG_RESPONSE))
    assert client.written == b""
    held.release()
    held.send(Command(0, 3, FLAG_RESPONSE))
    assert [answer.opaque for answer in client.answers()] == [1, 2, 3]


def test_releasing_nothing_writes_nothing() -> None:
    client = connection()
    HeldAnswers(client).release()
    assert client.written == b""
