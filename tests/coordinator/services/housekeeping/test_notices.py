from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from sqlalchemy import select, update
from tests.coordinator.services.watched import step
from tests.support import free_port

from sparrowmq.coordinator.alarms import outbox
from sparrowmq.coordinator.alarms.outbox import Channels, Notice
from sparrowmq.coordinator.alarms.senders import Sender, senders
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import notice
from sparrowmq.coordinator.services.housekeeping import notices as module
from sparrowmq.coordinator.services.housekeeping.notices import Notices
from sparrowmq.core.errors import DatabaseError

LOG_ONLY = Channels()


def post(database: Database, count: int = 1, channels: Channels = LOG_ONLY) -> None:
    with database.write() as connection:
        for number in range(count):
            outbox.post(connection, channels, number, "firing", {"group": "g", "topic": "", "n": number})


def send(database: Database, **senders: Sender) -> dict[str, int]:
    service = Notices(senders)
    try:
        return step(database, service).counts
    finally:
        service.close()


def errors(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(select(notice.c.error).order_by(notice.c.id)).scalars())


def test_all_due_notices_are_sent_once_in_order(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH", 2)
    got: list[Notice] = []
    post(database, 5)
    assert send(database, log=got.append) == {"sent": 5, "failed": 0, "put off": 0}
    assert [one.body["n"] for one in got] == [0, 1, 2, 3, 4]
    assert send(database, log=got.append) == {"sent": 0, "failed": 0, "put off": 0}


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1:{port}/k3y", "http://127.0.0.1:k3y/", "http://u:k3y@127.0.0.1:{port}/", "ftp://h/k3y",
     "http://127.0.0.1:{port}/k3y x", "http://127.0.0.1:{port}/?k3y\n", "k3y", "http://[k3y/"],
)  # fmt: skip
def test_key_in_a_webhooks_address_is_never_shown(database: Database, target: str) -> None:
    post(database, 1, Channels(target.format(port=free_port())))
    service = Notices({outbox.WEBHOOK: senders(None)[outbox.WEBHOOK]})
    try:
        report = step(database, service)
    finally:
        service.close()
    assert report.counts["failed"] == 2, "there is no channel for the log"
    (_, error) = errors(database)
    with database.read() as connection:
        listed = outbox.search(connection, failed=False, count=10)
    for told in (report.message, error, repr(listed)):
        assert "k3y" not in told
    assert error


def test_failure_is_recorded_and_blocks_no_other_work(database: Database) -> None:
    def refuse(one: Notice) -> None:
        raise OSError("connection refused")

    got: list[Notice] = []
    post(database, 1, Channels("http://hook", True, ("a@x.org",)))
    assert send(database, log=got.append, webhook=refuse) == {"sent": 1, "failed": 2, "put off": 0}
    assert errors(database) == [
        "",
        "OSError: connection refused",
        "the channel email is not set up on this coordinator",
    ]
    assert send(database, webhook=refuse) == {"sent": 0, "failed": 0, "put off": 0}


def test_run_names_the_failed_receiver_and_hides_its_secret(database: Database) -> None:
    def refuse(one: Notice) -> None:
        raise OSError("status 500")

    post(database, 1, Channels("https://hooks.example.org:8443/services/secret?key=secret"))
    service = Notices({"webhook": refuse, "log": lambda one: None})
    try:
        report = step(database, service)
    finally:
        service.close()
    assert report.message == "webhook to https://hooks.example.org:8443/…: OSError: status 500"
    with database.read() as connection:
        (found,) = outbox.search(connection, failed=True, count=10)
        assert len(outbox.search(connection, failed=False, count=10)) == 2
    assert (found.channel, found.target, found.attempts) == ("webhook", "https://hooks.example.org:8443/…", 1)
    assert (found.sent_at, found.given_up_at, found.error) == (0, 0, "OSError: status 500")
    assert found.next_try_at > found.created_at


def test_sent_and_abandoned_notices_are_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ATTEMPTS_MAX", 1)
    post(database, 1, Channels("http://h/x"))

    def refuse(one: Notice) -> None:
        raise OSError("no")

    send(database, log=lambda one: None, webhook=refuse)
    with database.read() as connection:
        given_up, sent = outbox.search(connection, failed=False, count=10)
    assert given_up.given_up_at > 0 == given_up.sent_at
    assert sent.sent_at > 0 == sent.given_up_at
    assert given_up.next_try_at == sent.next_try_at == 0


def test_hanging_receiver_times_out(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.02)
    end = threading.Event()

    def hang(one: Notice) -> None:
        end.wait(20)

    post(database)
    try:
        assert send(database, log=hang) == {"sent": 0, "failed": 1, "put off": 0}
    finally:
        end.set()
    assert errors(database) == ["no answer in time"]


def test_hanging_receiver_is_tried_once_per_run_and_others_get_all_notices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 1.0)
    monkeypatch.setattr(module, "THREADS", 1)
    monkeypatch.setattr(outbox, "BATCH", 10)
    end, tried, got = threading.Event(), list[Notice](), list[Notice]()

    def hang(one: Notice) -> None:
        tried.append(one)
        end.wait(20)

    post(database, 12, Channels("http://hook", True, ("a@x.org", "b@x.org")))
    try:
        counts = send(database, webhook=hang, email=mail(got, "a@x.org"), log=got.append)
    finally:
        end.set()
    assert counts == {"sent": 24, "failed": 2, "put off": 22}
    assert len(tried) == 1
    assert [one.target for one in got].count("b@x.org") == 12
    assert [one.body["n"] for one in got if one.channel == "log"] == list(range(12))
    with database.read() as connection:
        attempts = list(connection.execute(select(notice.c.attempts).order_by(notice.c.id)).scalars())
    assert attempts.count(0) == 22, "who was not tried has lost no try"


def mail(got: list[Notice], refused: str) -> Sender:
    def sender(one: Notice) -> None:
        if one.target == refused:
            raise OSError("550 no such mailbox")
        got.append(one)

    return sender


def test_channel_pauses_after_three_receivers_failed(database: Database) -> None:
    tried: list[str] = []

    def down(one: Notice) -> None:
        tried.append(one.target)
        raise OSError("connection refused")

    receivers = tuple(f"p{number}@x.org" for number in range(9))
    post(database, 1, Channels("", True, receivers))
    assert send(database, email=down, log=lambda one: None) == {"sent": 1, "failed": 3, "put off": 6}
    assert tried == list(receivers[:3])


def test_notice_is_not_sent_repeatedly_when_nothing_can_be_recorded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[Notice] = []
    post(database)

    def full(*arguments: object, **more: object) -> None:
        raise DatabaseError("the disk of the database is full")

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "settle", full)
        for _ in range(3):
            with suppress(DatabaseError):
                send(database, log=got.append)
    assert len(got) == 1
    with database.write() as connection:
        connection.execute(update(notice).values(next_try_at=0))
    assert send(database, log=got.append)["sent"] == 1
    assert [(one.id, one.attempts) for one in got] == [(1, 1), (1, 2)]
