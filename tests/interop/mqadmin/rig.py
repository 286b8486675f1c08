"""Runs the cases of `commands` at a cluster: its messages and clients, and a JVM that is `mqadmin`."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.interop.apache import PATIENT, ApacheCluster, PeerError
from tests.interop.driver import JavaDriver, JavaError
from tests.interop.mqadmin.commands import Case
from tests.interop.mqadmin.compare import Shown, shown
from tests.support import until_sync

from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.testing import LocalCluster

COMMAND_SECONDS: Final = 40.0
ENDLESS_SECONDS: Final = 3.0
ROOT: Final = {"access_key": "root", "secret_key": "toor12345"}
FIRST: Final = '{"username":"root","password":"toor12345"}'
PROVIDERS: Final = "org.apache.rocketmq.auth.%s.provider.Local%sMetadataProvider"
MISSING_ID: Final = "7F00000100002A9F00000000FFFFFFFF"
TOPICS: Final = [
    {"topicName": f"listed_{n}", "readQueueNums": n, "writeQueueNums": n, "perm": 6} for n in (1, 2)
]
GROUPS: Final = [{"groupName": f"listed_{n}", "retryMaxTimes": n} for n in (1, 2)]


class Cluster(Protocol):
    """A cluster of either kind."""

    @property
    def namesrv(self) -> str:
        """`HOST:PORT` of the name server."""

    @property
    def broker_address(self) -> str:
        """`HOST:PORT` of the broker."""


class Tools:
    """`mqadmin` in a JVM that a command may end; the next gets another. A context manager."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="mqadmin-"))
        self._java: JavaDriver | None = None

    def commands(self) -> list[str]:
        """The names of all commands."""
        return [one["name"] for one in self._running().call("MqAdmin.commands")]

    def run(self, case: Case, place: Place) -> Shown:
        """What a command shows at a place."""
        exit_file = self._directory / "exit.json"
        exit_file.unlink(missing_ok=True)
        arguments = [case.command, *shlex.split(case.arguments.format(**place.values))]
        arguments += ["-n", place.cluster.namesrv]
        within = ENDLESS_SECONDS if case.endless else COMMAND_SECONDS
        java = self._running()
        account = ROOT if place.guarded else {}
        status: int | None = 0
        try:
            found = java.call(
                "MqAdmin.run",
                seconds=within + 30,
                arguments=arguments,
                within=within,
                exit_file=str(exit_file),
                **account,
            )
        except PeerError:
            status = java.wait()
            self._end()
            found = json.loads(exit_file.read_text())
        else:
            if not found["ended"]:
                status = None
                self._end()
        files = sorted(one for one in place.directory.rglob("*") if one.is_file())
        texts = [found["out"], found["err"], *(one.read_text(errors="replace") for one in files)]
        shutil.rmtree(place.directory, ignore_errors=True)
        place.directory.mkdir()
        return shown(status, texts, found["answers"], place.names)

    def _running(self) -> JavaDriver:
        if self._java is None:
            self._java = JavaDriver()
        return self._java

    def _end(self) -> None:
        java, self._java = self._java, None
        if java is not None:
            java.close()

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster with messages and clients; `values` fill the arguments of cases."""

    cluster: Cluster
    directory: Path
    files: Path
    values: dict[str, str]
    guarded: bool = False

    @property
    def names(self) -> dict[str, str]:
        """What stands for this place's own addresses and directories."""
        known = {self.values[name]: name.upper() for name in ("client",) if self.values.get(name)}
        return {
            **known,
            self.cluster.broker_address: "BROKER",
            self.cluster.namesrv: "NAMESRV",
            str(self.directory): "DIRECTORY",
            str(self.files): "FILES",
        }


@contextmanager
def filled(cluster: Cluster, driver: JavaDriver) -> Iterator[Place]:
    """A cluster with a topic of eight messages, a group that has read them, and a producer."""
    with ExitStack() as stack:
        place = stack.enter_context(_place(cluster))
        admin = driver.admin(cluster.namesrv)
        admin.create_topic(cluster.broker_address, "orders", 2)
        admin.create_topic(cluster.broker_address, "sent", 2)
        producer = stack.enter_context(driver.producer(cluster.namesrv, "shop"))
        for number in range(8):
            message = Message(
                "orders", b"order %d" % number, tags="Tag" + "AB"[number % 2], keys=[f"key-{number}"]
            )
            (sent,) = producer.send([message], queue=MessageQueue("orders", "broker-a", number % 2))
            if number == 1:
                place.values.update({"message_id": sent.msg_id, "offset_id": sent.offset_msg_id})
        consumer = stack.enter_context(driver.consumer(cluster.namesrv, "billing", {"orders": "*"}))
        consumer.wait(8)

        def committed() -> bool:
            try:
                return sum(done for _, done in admin.group_progress("billing").values()) == 8
            except JavaError:  # nothing is known of the group before its first commit
                return False

        until_sync(committed)
        (online,) = admin.call("consumers", group="billing")["connectionSet"]
        place.values["client"] = online["clientId"]
        yield place


@contextmanager
def _place(cluster: Cluster, *, guarded: bool = False) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as root:
        directory, files = Path(root) / "out", Path(root) / "files"
        directory.mkdir()
        files.mkdir()
        (files / "topics.json").write_text(json.dumps(TOPICS))
        (files / "groups.json").write_text(json.dumps(GROUPS))
        values = {
            "broker": cluster.broker_address,
            "directory": str(directory),
            "topics": str(files / "topics.json"),
            "groups": str(files / "groups.json"),
            "missing_id": MISSING_ID,
        }
        yield Place(cluster, directory, files, values, guarded)


@contextmanager
def guarded_apache() -> Iterator[Place]:
    """Apache's servers with users and policies."""
    with tempfile.TemporaryDirectory(prefix="mqadmin-auth-") as directory:
        settings = {
            **PATIENT,
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationMetadataProvider": PROVIDERS % ("authentication", "Authentication"),
            "authorizationMetadataProvider": PROVIDERS % ("authorization", "Authorization"),
            "initAuthenticationUser": FIRST,
            "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner12345"}',
            "authConfigPath": directory,
        }
        with ApacheCluster(settings=settings) as cluster, _place(cluster, guarded=True) as place:
            yield place


@contextmanager
def guarded_ours() -> Iterator[Place]:
    """Ours with users and policies."""
    settings: dict[str, Any] = {"authentication_enabled": True, "authorization_enabled": True}
    with (
        LocalCluster(**settings, init_authentication_user=FIRST) as cluster,
        _place(cluster, guarded=True) as place,
    ):
        yield place


def run(cases: Iterable[Case], open_to_all: Place, guarded: Place) -> Iterator[tuple[Case, Shown]]:
    """What each case shows, in order, at the cluster it is for."""
    with Tools() as tools:
        for case in cases:
            yield case, tools.run(case, guarded if case.guarded else open_to_all)
