"""Retention holds through the admin client, over the wire, down to the files that are kept."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

SMALL = 64 * 1024


def test_messages_stay_until_their_group_has_read_them() -> None:
    settings = {
        "mapped_file_size_commit_log": SMALL,
        "delete_commit_log_files_interval": 0,
        "clean_resource_interval": 20,
    }
    with LocalCluster(**settings) as cluster, mq.Admin(cluster.namesrv) as admin:
        cluster.create_topic("Kept", queues=1)
        with mq.Producer("keepers", namesrv=cluster.namesrv) as producer:
            for _ in range(6):
                producer.send_batch([mq.Message("Kept", b"x" * 1000) for _ in range(50)])
        admin.groups.create("archive")
        admin.holds.set("Kept", "archive", hours=10)
        until_sync(lambda: admin.holds.list()[0].messages == 300)
        (hold,) = admin.holds.list()
        assert (hold.topic, hold.group, hold.hours) == ("Kept", "archive", 10)
        assert hold.oldest_ms is not None and not hold.overrun

        def expire() -> None:
            """Make the broker delete what it may; a later flush makes a file young again."""
            for file in sorted((cluster.data / "commitlog").iterdir()):
                with suppress(FileNotFoundError):
                    os.utime(file, (0, 0))
            admin.brokers.delete_expired_files(hold.broker_name)

        with mq.PullConsumer("archive", namesrv=cluster.namesrv) as consumer:
            (queue,) = consumer.queues("Kept")
            consumer.commit(queue, 120)
            until_sync(lambda: admin.holds.list()[0].messages == 180)
            until_sync(lambda: expire() or consumer.min_offset(queue) > 0)
            for _ in range(5):
                expire()
            assert consumer.min_offset(queue) <= 120
            admin.holds.delete("Kept")
            assert admin.holds.list() == []
            until_sync(lambda: expire() or consumer.min_offset(queue) > 120)


def test_invalid_holds_are_refused() -> None:
    with LocalCluster() as cluster, mq.Admin(cluster.namesrv) as admin:
        with pytest.raises(mq.NoRouteError):
            admin.holds.set("Nowhere", "g")
        cluster.create_topic("Here", queues=1)
        with pytest.raises(mq.SettingsError, check=about(setting="hours", value=0, limit=1)):
            admin.holds.set("Here", "g", hours=0)
        with pytest.raises(mq.InvalidNameError):
            admin.holds.set("Here", "")
