"""Delayed messages of a whole broker: the progress on disk is never ahead of the delivered messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.rig import send_command
from tests.broker.test_exchange import bodies
from tests.broker.test_server import serving
from tests.support import about, run, until

from sparrowmq.core.errors import StoreError


@pytest.mark.proves("broker:8.1", "broker:8.2")
def test_progress_is_written_after_the_delivered_messages_are_on_disk(tmp_path: Path) -> None:
    """The log is flushed only every ten seconds; a power failure in between must not lose any message."""

    async def main() -> None:
        settings = {
            "message_delay_level": "0s",
            "flush_interval_commit_log": 10_000,
            "flush_delay_offset_interval": 10,
            "timer_flush_interval_ms": 10,
        }
        async with serving(tmp_path, **settings) as call:
            delayed, store = call.broker.parts.delayed, call.broker.parts.store
            assert store is not None and delayed.timers is not None
            timers, offsets = delayed.timers, delayed.offsets
            await call.create("TopicTest")
            await call(send_command(b"level", properties="DELAY\x011\x02"))
            await until(lambda: offsets.get(1) == 1 and offsets.unsaved() is None)
            assert store.flushed_position == store.position
            assert await bodies(call) == [b"level"]
            await call(send_command(b"timer", properties="TIMER_DELAY_SEC\x0150\x02"))
            await until(lambda: timers.queue_offset == 1 and timers.unsaved() is None)
            assert store.flushed_position == store.position

    run(main())


def test_progress_is_not_written_when_the_log_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise StoreError("the disk is gone")

    async def main() -> None:
        settings = {
            "message_delay_level": "0s",
            "flush_interval_commit_log": 10_000,
            "flush_delay_offset_interval": 10,
        }
        async with serving(tmp_path, **settings) as call:
            offsets, store = call.broker.parts.delayed.offsets, call.broker.parts.store
            await call.create("TopicTest")
            with monkeypatch.context() as patched:
                patched.setattr(store, "flush", failing)
                await call(send_command(b"level", properties="DELAY\x011\x02"))
                await until(lambda: offsets.get(1) == 1)
                with pytest.raises(StoreError, check=about(args=("the disk is gone",))):
                    await call.broker.parts.delayed._save()
                assert offsets.unsaved() is not None
            await until(lambda: offsets.unsaved() is None)

    run(main())
