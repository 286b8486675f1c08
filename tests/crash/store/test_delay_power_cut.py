"""A power cut while messages wait: of the log what was flushed is left, of their progress everything.

What was flushed before the cut comes, perhaps again, and nothing comes early: neither that, nor what is
sent afterwards and takes the places of what was lost.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.broker.delay.test_timer import T0, Clockwork
from tests.broker.rig import connection, send_command
from tests.conftest import LONG

CUTS = 200 if LONG else 10
STEPS = 60
LEVELS_MS = (1000, 5000)


class Waiting(Clockwork):
    """Timers and delay levels over one store."""

    def __init__(self, root: Path, now: int) -> None:
        super().__init__(root, now=now, message_delay_level="1s 5s")
        rig = self.rig
        self.offsets, self.schedule = rig.delayed.offsets, rig.delayed.schedule
        self.due: dict[bytes, int] = {}
        self.ends: dict[bytes, int] = {}

    def send_some(self, rng: random.Random, body: bytes) -> None:
        """One message by either way; when it is due and where its record ends."""
        now = self.rig.clock.ms
        if rng.random() < 0.5:
            level = rng.randrange(len(LEVELS_MS))
            text, wait = f"DELAY\x01{level + 1}\x02", LEVELS_MS[level]
        else:
            wait = rng.randrange(1, 8000)
            text = f"TIMER_DELAY_MS\x01{wait:04}\x02"
        client = connection()
        command = send_command(body, properties=f"UNIQ_KEY\x01{body.decode()}\x02{text}")
        assert self.rig.sending.handle(client, command) is None
        assert client.answers()[0].code == 0
        self.due[body], self.ends[body] = now + wait, self.rig.store.position

    def deliver(self) -> None:
        """Everything that is due."""
        self.settle()
        for level in range(len(LEVELS_MS)):
            while self.schedule.deliver(level + 1).more:
                pass

    def save_all(self) -> None:
        """As a running broker does it."""
        check, unsaved = self.timers.unsaved(), self.offsets.unsaved()
        self.rig.store.flush()
        if check is not None:
            self.timers.write(check)
        if unsaved is not None:
            self.offsets.write(unsaved)

    def come(self) -> dict[bytes, int]:
        """When each message was delivered first."""
        found: dict[bytes, int] = {}
        for record in self.delivered():
            found.setdefault(record.body, record.store_timestamp)
        return found


def cut_power(root: Path, target: Path, flushed: int) -> None:
    """The directory as it is, but the log zeroed behind what was flushed."""
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("lock"))
    (target / "abort").write_bytes(b"1")
    for path in (target / "commitlog").iterdir():
        data, kept = path.read_bytes(), max(0, flushed - int(path.name))
        path.write_bytes(data[:kept] + bytes(len(data) - min(kept, len(data))))


@pytest.mark.crash
@pytest.mark.proves("broker:8.1", "broker:8.2")
@pytest.mark.parametrize("seed", range(CUTS))
def test_what_was_flushed_comes_and_nothing_comes_early(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    first = Waiting(tmp_path / "store", T0)
    for number in range(STEPS):
        first.send_some(rng, b"%04d" % number)
        if rng.random() < 0.6:
            first.rig.clock.ms += rng.randrange(400)
            first.deliver()
        if rng.random() < 0.1:
            first.rig.store.flush()
        if rng.random() < 0.2:
            first.save_all()
    durable = first.rig.store.flushed_position
    cut_power(tmp_path / "store", tmp_path / "cut", durable)
    first.kill()
    second = Waiting(tmp_path / "cut", first.rig.clock.ms)
    for number in range(rng.randrange(1, 30)):
        second.send_some(rng, b"n%03d" % number)
    for _ in range(30):
        second.rig.clock.ms += rng.randrange(1000)
        second.deliver()
    found = second.come()
    wanted = {body for body, end in first.ends.items() if end <= durable} | set(second.due)
    assert wanted <= set(found), f"lost: {sorted(wanted - set(found))}"
    due = first.due | second.due
    assert not [body for body, at in found.items() if at < due[body]]
    second.close()
