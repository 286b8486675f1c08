"""The same facts by the console and by Apache's mqadmin: how long each takes, and who is right.

    python -m benchmarks.console_beside [--topics 100] [--groups 20] [--rounds 5]

The cluster is Apache's. mqadmin runs as operators run it, a process for each command, and also as calls in
one JVM, without its start. The console's API and its page are requested with new connections. Each figure is
a median. Where their values differ, the files of the broker show which are right.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.interop.apache import BENCHMARK_HEAP, OPEN_MODULES, PATIENT, ApacheCluster, class_path
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from benchmarks import console_facts as facts
from benchmarks.console import LOOKS_SECONDS, Coordinator, coordinator, make
from benchmarks.console_facts import ApacheStore, Fact

STARTUP: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"
GROUP: Final = "group000"
TOPIC: Final = "Topic0000"
KEY: Final = "k0-3"
READER: Final = "reader"
"""A group with a member that has read everything of a topic."""
NEWCOMER: Final = "newcomer"
"""A group that never consumed."""
LATE: Final = "late"
"""A group whose next messages were deleted: those of a topic of its own."""
EXPIRED: Final = "Expired"
LOG_FILE_BYTES: Final = 1 << 20
QUEUE_FILE_BYTES: Final = 20 * 1000
EXPIRED_MESSAGES: Final = 30
EXPIRED_BYTES: Final = 100_000
SETTINGS: Final = {
    **PATIENT,
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
}
"""Small files, of which the broker deletes the first."""


def of_cluster(address: str) -> list[Fact]:
    """Facts about brokers, topics and messages."""
    return [
        Fact(
            "brokers and versions",
            command=("clusterList",),
            path="/cluster/servers",
            page="/brokers",
            shows=address,
            printed=facts.brokers_printed,
            answered=facts.brokers_answered,
        ),
        Fact(
            "the log of a broker",
            command=("brokerStatus", "-b", address),
            path="/cluster/disks",
            page=f"/brokers/{quote(address, safe='')}",
            shows=address,
            printed=facts.log_printed,
            answered=facts.log_answered,
            stored=lambda store: {"bytes": store.log_end - store.log_begin},
        ),
        *map(of_topic, (TOPIC, EXPIRED)),
        Fact(
            "a message by its key",
            command=("queryMsgByKey", "-t", TOPIC, "-k", KEY),
            path=f"/cluster/messages/{TOPIC}/by-key?key={KEY}",
            page=f"/messages?topic={TOPIC}&by=key&key={KEY}",
            shows=KEY,
            printed=facts.found_printed,
            answered=facts.found_answered,
        ),
    ]


def of_topic(topic: str) -> Fact:
    """Where the queues of a topic begin and end."""
    return Fact(
        f"queues of {topic}",
        command=("topicStatus", "-t", topic),
        path=f"/cluster/topics/{topic}",
        page=f"/topics/{topic}",
        shows=topic,
        printed=facts.topic_printed,
        answered=facts.topic_answered,
        stored=lambda store: store.topic(topic),
    )


def of_groups(client: str) -> list[Fact]:
    """Facts about groups; the client is the member of one."""
    member = f"/groups/{READER}/members/{quote(client, safe='')}"
    return [
        Fact(
            "lag of all groups",
            command=("consumerProgress",),
            path="/cluster/lag",
            page="/groups",
            shows=GROUP,
            printed=facts.lags_printed,
            answered=facts.lags_answered,
            stored=lambda store: store.lags(),
        ),
        Fact(
            f"lag of {GROUP} by queue",
            command=("consumerProgress", "-g", GROUP, "-t", TOPIC),
            path=f"/cluster/groups/{GROUP}/progress",
            page=f"/groups/{GROUP}",
            shows=TOPIC,
            printed=partial(facts.progress_printed, TOPIC),
            answered=partial(facts.progress_answered, TOPIC),
            stored=lambda store: store.progress(GROUP, TOPIC),
        ),
        lag_of(NEWCOMER, TOPIC),
        lag_of(LATE, EXPIRED),
        Fact(
            "queues of a member",
            command=("consumerStatus", "-g", READER, "-i", client),
            path=f"/cluster{member}",
            page=member,
            shows=TOPIC,
            printed=partial(facts.held_printed, TOPIC),
            answered=partial(facts.held_answered, TOPIC),
        ),
    ]


def lag_of(group: str, topic: str) -> Fact:
    """The lag of one group, which has no other topic."""
    return Fact(
        f"lag of {group}",
        command=("consumerProgress", "-g", group, "-t", topic),
        path="/cluster/lag",
        page=f"/groups/{group}",
        shows=group,
        printed=partial(facts.lag_printed, group),
        answered=partial(facts.lag_answered, group),
        stored=lambda store: {group: store.lags().get(group)},
    )


@contextmanager
def scene(peer: ApacheCluster, topics: int, groups: int) -> Iterator[str]:
    """A cluster with all that the facts are about; gives the client id of the member."""
    with (
        mq.Admin(namesrv=peer.namesrv) as admin,
        mq.Producer("bench-large", namesrv=peer.namesrv) as producer,
    ):
        admin.topics.create(EXPIRED, queues=1)
        for _ in range(EXPIRED_MESSAGES):
            producer.send(mq.Message(EXPIRED, os.urandom(EXPIRED_BYTES)))
        (queue,) = admin.topics.status(EXPIRED)
        admin.groups.create(LATE)
        admin.groups.commit(LATE, queue.queue, 1)
        delete_first(admin, peer.broker_address)
        admin.groups.create(NEWCOMER)
        asyncio.run(make(peer.namesrv, topics, groups))
        settings = mq.ConsumerSettings(namesrv=peer.namesrv, consume_from="first")
        with mq.PushConsumer(READER, settings=settings) as consumer:
            consumer.subscribe(TOPIC, handler=lambda message: None)
            until_sync(lambda: has_read_all(admin), 120)
            online = admin.groups.connections(READER)
            assert online is not None
            yield online.members[0].client_id


def delete_first(admin: mq.Admin, broker: str) -> None:
    """Have the broker delete all files of its log but the last."""
    kept = admin.brokers.settings(broker)["fileReservedTime"]
    admin.brokers.set_settings(broker, {"fileReservedTime": "0"})
    try:
        admin.brokers.delete_expired_files(broker)
        until_sync(lambda: admin.topics.status(EXPIRED)[0].min_offset > 1, 120)
    finally:
        admin.brokers.set_settings(broker, {"fileReservedTime": kept})


def has_read_all(admin: mq.Admin) -> bool:
    """Whether the reading group's offsets are the ends of all queues."""
    rows = admin.groups.progress(READER, TOPIC)
    return bool(rows) and not any(one.lag for one in rows)


def median_ms(rounds: int, work: Callable[[], object]) -> float:
    """The median of some rounds, in milliseconds."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        took.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took)


def process(arguments: Sequence[str], namesrv: str, home: Path) -> None:
    """A command of mqadmin in a process of its own. Raises `CalledProcessError`."""
    command = ["java", f"-Duser.home={home}", *OPEN_MODULES, "-cp", class_path(), STARTUP]
    subprocess.run(
        [*command, *arguments, "-n", namesrv], check=True, capture_output=True, timeout=120, cwd=home
    )


def page(console: Coordinator, path: str, shows: str) -> None:
    """A page of the console, over a new connection, which must show a text."""
    connection = HTTPConnection(console.address, timeout=60)
    try:
        status, text = console.page(path, connection)
        assert status == 200 and shows in text.decode(), (path, status, shows)
    finally:
        connection.close()


def compare(fact: Fact, said: Callable[[], str], console: Coordinator, store: ApacheStore) -> str:
    """Ask mqadmin, the API and the files for the values of a fact; gives who is right."""
    printed, answered = fact.printed(facts.words_of(said())), fact.answered(console.api(fact.path))
    stored = None if fact.stored is None else fact.stored(store)
    found = facts.verdict(printed, answered, stored)
    if printed != answered:
        print(f"{fact.name}:\n  mqadmin {printed}\n  console {answered}\n  files {stored}", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description="The console beside Apache's mqadmin.")
    for name, default in (("topics", 100), ("groups", 20), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    rows = ["| fact | mqadmin | mqadmin without its start | API | page | values |"]
    with (
        ApacheCluster(heap=BENCHMARK_HEAP, settings=SETTINGS) as peer,
        scene(peer, options.topics, options.groups) as client,
        tempfile.TemporaryDirectory() as directory,
        coordinator(peer.namesrv, Path(directory) / "coordinator.db") as console,
        JavaDriver() as java,
    ):
        assert peer.broker.store is not None
        store, home = ApacheStore(peer.broker.store), Path(directory)
        time.sleep(LOOKS_SECONDS)
        for fact in [*of_cluster(peer.broker_address), *of_groups(client)]:
            said = [*fact.command, "-n", peer.namesrv]
            ask = partial(java.call, "Lookups.mqadmin", arguments=said)
            who = compare(fact, ask, console, store)
            alone = median_ms(options.rounds, partial(process, fact.command, peer.namesrv, home))
            warm = median_ms(options.rounds, ask)
            asked = median_ms(4 * options.rounds, partial(console.api, fact.path))
            shown = median_ms(4 * options.rounds, partial(page, console, fact.page, fact.shows))
            times = " | ".join(f"{one:,.0f} ms" for one in (alone, warm, asked, shown))
            rows.append(f"| {fact.name} | {times} | {who} |")
            print(rows[-1], flush=True)
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
