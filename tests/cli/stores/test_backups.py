"""`sparrow backup` and `restore` with a broker that is at work, and as people call them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from tests.cli.conftest import Sparrow
from tests.store.offline.directories import fill, filled

import sparrowmq as mq
from sparrowmq.testing import LocalCluster


@pytest.fixture
def run() -> Sparrow:
    """The command, without a cluster."""
    return Sparrow("127.0.0.1:1")


class Load(threading.Thread):
    """Sends numbers to a topic until it is told to end; `sent` are those that were acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.sent = 0
        self.ended = threading.Event()
        self.begun = threading.Event()

    def run(self) -> None:
        with mq.Producer("load", namesrv=self.cluster.namesrv) as producer:
            while not self.ended.is_set():
                messages = [mq.Message("T", b"%d" % (self.sent + n), keys=[f"k{n}"]) for n in range(20)]
                producer.send_batch(messages)
                self.sent += 20
                if self.sent >= 200:
                    self.begun.set()


def test_a_backup_of_a_broker_at_work_has_all_that_was_acknowledged_before(
    run: Sparrow, tmp_path: Path
) -> None:
    with LocalCluster(data=tmp_path / "store") as cluster:
        cluster.create_topic("T", queues=4)
        load = Load(cluster)
        load.start()
        try:
            assert load.begun.wait(30)
            before = load.sent
            for _ in range(2):
                run("backup", str(tmp_path / "store"), str(tmp_path / "backups"))
            (made,) = run("backup", str(tmp_path / "store"), str(tmp_path / "backups"), "--json").values
        finally:
            load.ended.set()
            load.join(30)
    assert made["number"] == 3
    assert run("restore", str(tmp_path / "backups"), str(tmp_path / "again")).lines[-1] == "whole"
    bodies = [int(one["body"]) for one in run("store", "dump", str(tmp_path / "again"), "-t", "T").values]
    assert len(bodies) >= before
    assert sorted(bodies) == list(range(len(bodies))), "none is missing and none is double"
    with (
        LocalCluster(data=tmp_path / "again") as cluster,
        mq.PullConsumer("g", namesrv=cluster.namesrv) as one,
    ):
        queues = one.queues("T")
        one.assign(queues)
        for queue in queues:
            one.seek_to_begin(queue)
        found: set[int] = set()
        while len(found) < len(bodies) and (polled := one.poll(5)):
            found.update(int(message.body) for message in polled)
        assert found == set(bodies)


def test_what_people_see(run: Sparrow, tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    shutil.copytree(filled(), root)
    assert run("backup", str(root), str(target)).out.startswith("backup 1: log from 0 to ")
    assert run("restore", str(target), str(tmp_path / "again")).out.startswith("backup 1 restored to ")
    (value,) = run("restore", str(target), str(tmp_path / "third"), "--json").values
    assert value["check"]["whole"] and value["check"]["directory"] == str(tmp_path / "third")


@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", "{missing}", "{new}"),
        ("backup", "{store}", "{store}/inside"),
        ("restore", "{missing}", "{new}"),
        ("restore", "{backups}", "{store}"),
        ("restore", "{backups}", "{new}", "--number", "7"),
        ("restore", "{backups}", "{new}", "--until", "1999-01-01"),
        ("restore", "{backups}", "{new}", "--until", "soon"),
    ],
)
def test_wrong_use_has_its_own_status(arguments: tuple[str, ...], run: Sparrow, tmp_path: Path) -> None:
    names = ("missing", "new", "store", "backups")
    places = {name: str(tmp_path / name) for name in names}
    fill(tmp_path / "store", 4)
    run("backup", places["store"], places["backups"])
    found = run(*(one.format(**places) for one in arguments), status=2)
    assert found.err.startswith("sparrow: ")
    assert not (tmp_path / "new").exists()
