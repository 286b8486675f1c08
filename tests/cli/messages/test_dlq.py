"""`sparrow dlq` against a running cluster: dead letters are counted, shown, exported and sent again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

GROUP, TOPIC = "undertakers", "Mortal"


@pytest.fixture(scope="module")
def dead(cluster: LocalCluster) -> list[str]:
    """Ids of two dead letters."""
    namesrv = cluster.namesrv
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first", max_reconsume_times=0)
    with mq.Producer("mothers", namesrv=namesrv) as producer:
        first = producer.send(mq.Message(TOPIC, b"one", tags="T", keys=["k1"], properties={"mine": "1"}))
        second = producer.send(mq.Message(TOPIC, b"\xff\x00"))

    def fail(message: mq.ReceivedMessage) -> None:
        raise ValueError("it fails")

    with mq.PushConsumer(GROUP, settings=settings) as consumer, mq.Admin(namesrv) as admin:
        consumer.subscribe(TOPIC, handler=fail)
        until_sync(lambda: (GROUP, 2) in [(s.group, s.messages) for s in admin.dead_letters.groups()])
    return [first.message_id, second.message_id]


def test_groups_are_listed(sparrow: Sparrow, dead: list[str]) -> None:
    assert {"group": GROUP, "messages": 2} in sparrow("dlq", "list", "--json").values
    assert GROUP in sparrow("dlq", "list").out


def test_letters_are_shown(sparrow: Sparrow, dead: list[str]) -> None:
    letters = {letter["message_id"]: letter for letter in sparrow("dlq", "show", GROUP, "--json").values}
    assert set(letters) == set(dead)
    first = letters[dead[0]]
    assert (first["topic"], first["tags"], first["keys"], first["tries"]) == (TOPIC, "T", ["k1"], 1)
    assert base64.b64decode(letters[dead[1]]["body"]) == b"\xff\x00"
    assert len(sparrow("dlq", "show", GROUP, "--count", "1", "--json").values) == 1
    assert dead[0] in sparrow("dlq", "show", GROUP).out


def test_letters_are_exported(sparrow: Sparrow, dead: list[str], tmp_path: Path) -> None:
    out = tmp_path / "letters.jsonl"
    assert "2 dead letters" in sparrow("dlq", "export", GROUP, "--out", str(out)).out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["message_id"] for line in lines} == set(dead)
    assert sparrow("dlq", "export", GROUP).values == lines
    assert "cannot write" in sparrow("dlq", "export", GROUP, "-o", str(tmp_path / "no" / "x"), status=1).err


def test_an_export_that_fails_leaves_the_one_before(
    sparrow: Sparrow, dead: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "letters.jsonl"
    sparrow("dlq", "export", GROUP, "--out", str(out))
    before = out.read_text()
    assert "no broker knows" in sparrow("dlq", "export", "nobody", "--out", str(out), status=1).err
    assert out.read_text() == before and list(tmp_path.iterdir()) == [out]
    fresh = tmp_path / "fresh.jsonl"
    sparrow("dlq", "export", "nobody", "--out", str(fresh), status=1)
    assert not fresh.exists(), "an empty file would look like a group without dead letters"
    assert "2 dead letters" in sparrow("dlq", "export", GROUP, "--out", "/dev/null").out


def test_a_letter_sent_again_reaches_its_group_only(
    sparrow: Sparrow, dead: list[str], cluster: LocalCluster
) -> None:
    assert "1 sent" in sparrow("dlq", "resend", GROUP, dead[0]).out
    got: list[mq.ReceivedMessage] = []
    consumer = mq.PushConsumer(GROUP, namesrv=cluster.namesrv)
    consumer.subscribe(TOPIC, handler=got.append)  # before it starts: what is not subscribed goes to retry
    with consumer:
        until_sync(lambda: got)
    (message,) = got
    assert (message.topic, message.body, message.tags, message.keys) == (TOPIC, b"one", "T", ["k1"])
    assert (message.properties["mine"], message.reconsume_times) == ("1", 0)
    with mq.PullConsumer("others", namesrv=cluster.namesrv) as others:
        assert sum(others.max_offset(queue) for queue in others.queues(TOPIC)) == 2


def test_what_is_not_there_is_named(sparrow: Sparrow, dead: list[str]) -> None:
    refused = sparrow("dlq", "resend", GROUP, "XX", status=1)
    assert refused.out == f"0 sent again to group {GROUP}\n"
    assert "no dead letter with the id XX" in refused.err
    assert "or --all" in sparrow("dlq", "resend", GROUP, status=1).err
    assert "or --all, not both" in sparrow("dlq", "resend", GROUP, "XX", "--all", status=1).err
    for command in (("show",), ("export",), ("resend", "--all")):
        assert "no broker knows the group 'nobody'" in sparrow("dlq", *command, "nobody", status=1).err
    assert "2 sent" in sparrow("dlq", "resend", GROUP, "--all").out


def test_a_group_without_dead_letters_has_none(sparrow: Sparrow) -> None:
    sparrow("group", "create", "immortals")
    assert sparrow("dlq", "show", "immortals", "--json").values == []
    assert sparrow("dlq", "export", "immortals").out == ""
    assert sparrow("dlq", "resend", "immortals", "--all").out == "0 sent again to group immortals\n"


def test_letters_are_sent_again_at_a_rate_and_purged(sparrow: Sparrow, dead: list[str]) -> None:
    assert "2 sent" in sparrow("dlq", "resend", GROUP, *dead, "--rate", "100").out
    (told,) = sparrow("dlq", "resend", GROUP, *dead, "--json").values
    assert [one["outcome"] for one in told["letters"]] == ["sent", "sent"]
    assert all(one["new_id"] for one in told["letters"])
    assert told["stored_in"] == dict.fromkeys(dead, f"%RETRY%{GROUP}") and set(told["sent"]) == set(dead)
    asked = sparrow("dlq", "purge", GROUP, status=1).err
    assert "2 dead letters" in asked and "--yes" in asked
    assert "2 dead letters" in sparrow("dlq", "purge", GROUP, "--yes").out
    until_sync(lambda: sparrow("dlq", "show", GROUP, "--json").values == [])
    assert "has no dead letters" in sparrow("dlq", "purge", GROUP, "--yes", status=1).err


def test_different_letters_with_one_id_are_all_sent_again(sparrow: Sparrow, cluster: LocalCluster) -> None:
    group, topic = "twins", "Twins"
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", max_reconsume_times=0)
    with mq.Producer("mothers", namesrv=cluster.namesrv) as producer:
        for body in (b"one", b"two"):
            producer.send(mq.Message(topic, body, system={"UNIQ_KEY": "same"}))

    def fail(message: mq.ReceivedMessage) -> None:
        raise ValueError("it fails")

    with mq.PushConsumer(group, settings=settings) as consumer, mq.Admin(cluster.namesrv) as admin:
        consumer.subscribe(topic, handler=fail)
        until_sync(lambda: (group, 2) in [(s.group, s.messages) for s in admin.dead_letters.groups()])
    (told,) = sparrow("dlq", "resend", group, "--all", "--json").values
    assert told["sent"] == ["same", "same"] and told["stored_in"] == {"same": f"%RETRY%{group}"}
