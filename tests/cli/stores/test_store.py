"""`sparrow store …` as people call it: output, exit statuses, and a directory that a broker has open."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Sparrow
from tests.protocol.archives import CLEAN_5, KILLED_5, ledger, unpacked
from tests.store.damage import flip
from tests.store.offline.directories import filled

import sparrowmq as mq
from sparrowmq.testing import LocalCluster


@pytest.fixture
def run() -> Sparrow:
    """The command, without a cluster."""
    return Sparrow("127.0.0.1:1")


def test_verify_says_whole_or_what_is_damaged(run: Sparrow, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    assert run("store", "verify", str(root)).lines[-1] == "whole"
    (value,) = run("store", "verify", str(root), "--json").values
    assert (value["whole"], value["records"], value["findings"]) == (True, 60, [])
    flip(root, 100)
    found = run("store", "verify", str(root), status=1)
    assert "DAMAGE: log: damaged bytes (1)" in found.lines
    assert found.lines[-1] == "damaged"
    (value,) = run("store", "verify", str(root), "--json", status=1).values
    assert not value["whole"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "{missing}"),
        ("stat", "{missing}"),
        ("dump", "{missing}"),
        ("verify", "{store}", "--delay-levels", "1x"),
        ("dump", "{store}", "--queue", "1"),
        ("dump", "{store}", "--body", "hex"),
        ("dump", "{store}", "--since", "yesterday"),
    ],
)
def test_wrong_use_has_its_own_status(arguments: tuple[str, ...], run: Sparrow, tmp_path: Path) -> None:
    places = {"missing": str(tmp_path / "missing"), "store": str(filled())}
    found = run("store", *(one.format(**places) for one in arguments), status=2)
    assert found.err.startswith("sparrow: ")
    assert found.out == ""


def test_dump_of_a_real_directory_is_what_clients_saw(run: Sparrow) -> None:
    values = run("store", "dump", str(unpacked(CLEAN_5)), "--topic", "FxPlainB", "--body", "base64").values
    seen = {line["offset"]: line for line in ledger(CLEAN_5, "seen") if line["topic"] == "FxPlainB"}
    assert {value["physical_offset"] for value in values} == seen.keys()
    for value in values:
        line = seen[value["physical_offset"]]
        assert (value["queue"], value["offset"], value["size"]) == (
            line["queueId"],
            line["queueOffset"],
            line["size"],
        )
        assert value["properties"] == line["props"]
        assert len(base64.b64decode(value["body"])) == line["bodyLen"]


def test_dump_selects(run: Sparrow) -> None:
    def offsets(*arguments: str) -> list[tuple[str, int, int]]:
        values = run("store", "dump", str(filled()), "--body", "none", *arguments).values
        return [(value["topic"], value["queue"], value["offset"]) for value in values]

    assert len(offsets()) == 60
    assert offsets("--limit", "2") == [("Orders", 0, 0), ("Bills", 0, 0)]
    assert len(offsets("-t", "Orders")) == 30
    of_queue = ("-t", "Orders", "--queue", "1", "--offset", "3", "--end-offset", "5")
    assert offsets(*of_queue) == [("Orders", 1, 3), ("Orders", 1, 4)]
    assert offsets("--offset", "14") == [
        (topic, queue, 14) for queue in (0, 1) for topic in ("Orders", "Bills")
    ]
    assert offsets("--key", "k17") == [("Bills", 0, 4)]
    assert offsets("--key", "AB000017") == [("Bills", 0, 4)]
    assert offsets("--until", "2001-01-01") == []
    assert len(offsets("--since", "2001-01-01")) == 60
    assert offsets("-t", "Nothing", "--queue", "0") == []


def test_dump_tells_damage_and_goes_on(run: Sparrow, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    flip(root, 100)
    for arguments in ((), ("-t", "Orders", "--queue", "0")):
        found = run("store", "dump", str(root), *arguments, status=1)
        assert len(found.values) == (14 if arguments else 59)
        assert found.err.startswith("sparrow: ")


def test_stat_counts_by_topic(run: Sparrow) -> None:
    (value,) = run("store", "stat", str(filled()), "--json").values
    counted = {topic["topic"]: (topic["queues"], topic["messages"]) for topic in value["topics"]}
    assert counted == {"Orders": (2, 30), "Bills": (2, 30)}
    assert value["parts"]["commitlog"]["bytes"] == 4096 * value["parts"]["commitlog"]["files"]
    (real,) = run("store", "stat", str(unpacked(KILLED_5)), "--json").values
    assert (real["log_end"], real["is_clean"]) == (2902859, False)
    assert any(line.startswith("Orders ") for line in run("store", "stat", str(filled())).lines)


def test_names_from_the_directory_do_not_steer_the_terminal(run: Sparrow, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    (root / "consumequeue" / "Orders").rename(root / "consumequeue" / "Ord\x1b[31mers")
    for command in ("verify", "stat"):
        assert "\x1b" not in run("store", command, str(root), status=None).out


def test_a_directory_in_use_is_read_and_said_to_be(run: Sparrow, tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        cluster.create_topic("T", queues=2)
        with mq.Producer("p", namesrv=cluster.namesrv) as producer:
            for number in range(50):
                producer.send(mq.Message("T", b"%d" % number, keys=[f"k{number}"]))
        found = run("store", "verify", str(tmp_path))
        assert "is in use by a running broker" in found.err
        assert len(run("store", "dump", str(tmp_path), "-t", "T").values) == 50
        with mq.Producer("p", namesrv=cluster.namesrv) as producer:
            producer.send(mq.Message("T", b"still there"))
    (value,) = run("store", "verify", str(tmp_path), "--json").values
    assert (value["whole"], value["in_use"]) == (True, False)


def test_repair_says_what_it_would_do_and_does_it_when_told(run: Sparrow, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    assert run("store", "repair", str(root)).lines == ["nothing to repair"]
    shutil.rmtree(root / "consumequeue" / "Orders" / "1")
    told = run("store", "repair", str(root), status=1)
    assert told.lines == ["rebuild: queue Orders/1", "nothing was changed; use --write to repair"]
    assert not (root / "consumequeue" / "Orders" / "1").exists()
    assert run("store", "repair", str(root), "--write").lines[-1] == "whole"
    assert run("store", "verify", str(root)).lines[-1] == "whole"
    (value,) = run("store", "repair", str(root), "--json").values
    assert (value["whole"], value["plan"]["queues"]) == (True, [])


def test_copy_reads_its_work_back(run: Sparrow, tmp_path: Path) -> None:
    assert run("store", "copy", str(filled()), str(tmp_path / "copy")).lines[-1] == "whole"
    (value,) = run("store", "copy", str(filled()), str(tmp_path / "one"), "-t", "Bills", "--json").values
    assert (value["whole"], value["records"]) == (True, 30)
    run("store", "copy", str(filled()), str(tmp_path / "one"), status=2)
    run("store", "copy", str(filled()), str(tmp_path / "none"), "-t", "Nothing", status=2)
    assert not (tmp_path / "none").exists()
