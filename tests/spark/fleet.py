"""A name server and brokers as processes of their own: they are added, killed, started again and removed."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.runtime.child import ChildServers

FIRST: Final = "broker-a"
LOG_BYTES: Final = 16 << 20


class Fleet:
    """`broker-a` with the name server in one process, every further broker in one of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports: dict[str, str] = {}
        self._children: dict[str, ChildServers] = {}

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self._children[FIRST].nameserver_address

    @property
    def brokers(self) -> list[str]:
        """The brokers that the name server knows."""
        with mq.Admin(self.namesrv) as admin:
            return sorted(status.broker_name for status in admin.brokers.list())

    def start(self, name: str) -> None:
        """Start a broker, or start it again on its store and port; the name server knows it then."""
        settings = {
            "brokerName": name,
            "storePathRootDir": str(self._root / name),
            "listenPort": self._ports.get(name, "0"),
            "mappedFileSizeCommitLog": str(LOG_BYTES),
            "diskSpaceWarningLevelRatio": "100",
        }
        if name == FIRST:
            child = ChildServers(settings, {"listenPort": "0"}, log=self._root / f"{name}.log")
        else:
            settings["namesrvAddr"] = self.namesrv
            child = ChildServers(settings, log=self._root / f"{name}.log")
        self._children[name] = child
        child.start()
        self._ports[name] = child.broker_address.rpartition(":")[2]
        until_sync(lambda: name in self.brokers)

    def kill(self, name: str) -> None:
        """kill -9."""
        self._children[name].kill()

    def stop(self, name: str) -> None:
        """A clean end; the name server no longer knows it then."""
        self._children.pop(name).stop()
        until_sync(lambda: name not in self.brokers)

    def create_topic(self, topic: str, queues: int) -> None:
        """Make or change a topic on every broker."""
        with mq.Admin(self.namesrv) as admin:
            admin.topics.create(topic, queues=queues)

    def __enter__(self) -> Self:
        self.start(FIRST)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in sorted(self._children, reverse=True):  # the name server last
            self._children.pop(name).stop()
