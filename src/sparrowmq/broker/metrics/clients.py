"""Connected clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.admin.runtime_info import VERSION_TEXT
from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.core.names import is_system_group
from sparrowmq.protocol.codes import VERSION

if TYPE_CHECKING:
    from sparrowmq.broker.tables.clients import ClientTable, ConnectedMember

STEP_GROUPS: Final = 50
MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


class ClientFigures:
    """Members of producer and consumer groups."""

    def __init__(self, clients: ClientTable) -> None:
        self._clients = clients

    def collect(self, into: Exposition, node: str) -> Iterator[None]:
        """Add the figures, in another thread; `node` has the labels of the broker."""
        yield from self._producers(into, node)
        family = into.gauge("rocketmq_consumer_connections", "Connected members of a consumer group.")
        for at, (name, group) in enumerate(self._clients.consumers.copy().items()):
            kinds = Counter(_kind(member) for member in list(group.members.values()))
            for (language, version), count in kinds.items():
                label = labels(
                    node,
                    consumer_group=name,
                    language=language,
                    version=version,
                    consume_mode=MODES.get(str(group.consume_type), "unknown"),
                    protocol_type="remoting",
                    is_system="true" if is_system_group(name) else "false",
                )
                family.add(label, count)
            if at % STEP_GROUPS == 0:
                yield

    def _producers(self, into: Exposition, node: str) -> Iterator[None]:
        kinds: Counter[tuple[str, str]] = Counter()
        for at, members in enumerate(list(self._clients.producers.values())):
            kinds.update(_kind(member) for member in list(members.values()))
            if at % STEP_GROUPS == 0:
                yield
        family = into.gauge("rocketmq_producer_connections", "Connected members of producer groups.")
        for (language, version), count in sorted(kinds.items()):
            family.add(labels(node, language=language, version=version, protocol_type="remoting"), count)


def _kind(member: ConnectedMember) -> tuple[str, str]:
    """Language and version of a client, as labels. Clients choose the name of the language, so it is cut."""
    version = VERSION_TEXT if member.version == VERSION else str(member.version)
    return member.language.lower(), version.lower()
