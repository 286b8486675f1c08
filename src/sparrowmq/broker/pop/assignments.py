"""QUERY_ASSIGNMENT (400): the broker assigns the queues of a topic to a group's members (broker:13.10).

A group that reads by POP shares queues: by default each member receives from all queues of all brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.offsets import answer
from sparrowmq.broker.pop.waiting import ALL_QUEUES
from sparrowmq.core.allocation import AllocateStrategy, Averagely, AveragelyByCircle, utf16_key
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import AssignmentRequest, Assignments, MessageModel
from sparrowmq.protocol.bodies.clients import POP_MODE
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.base.routes import ReadableQueues
    from sparrowmq.broker.pop.request_modes import RequestModes
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.pop.records import RequestMode
    from sparrowmq.transport.connection import Connection

QUEUES_MAX: Final = 10_000
"""Maximum number of queues of a topic that a broker assigns; with more, members assign them themselves."""
STRATEGIES: Final[Mapping[str, AllocateStrategy]] = {
    one.name: one for one in (Averagely(), AveragelyByCircle())
}


def pop_shares(
    strategy: AllocateStrategy,
    asked: AssignmentRequest,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    share: int,
) -> list[MessageQueue]:
    """The queues from which a member receives by POP: its own and those of the next `share` members. If these
    are all members, or `share` is 0 or less: all queues (-1) of each broker. All arguments are sorted.
    """
    topic, group, client = asked.topic, asked.consumer_group, asked.client_id
    if share <= 0 or share >= len(members) - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return [MessageQueue(topic, name, ALL_QUEUES) for name in brokers]
    if client not in members:
        return []
    index = members.index(client)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    chosen = [members[(index + i) % len(members)] for i in range(share + 1)]
    return [queue for member in chosen for queue in strategy.allocate(group, member, queues, members)]


class AssignmentRequests:
    """The handler of 400 for groups without a coordinator's policy."""

    def __init__(
        self, topics: TopicTable, clients: ClientTable, modes: RequestModes, routes: ReadableQueues
    ) -> None:
        self._topics = topics
        self._clients = clients
        self._modes = modes
        self._routes = routes

    async def query(self, connection: Connection, command: Command) -> Command:
        """400: a member's queues, each with how it is read. Without a list, the member keeps its queues: the
        topic or the group is unknown here. Raises `Refused` with code 3 if the members have to assign the
        queues themselves.
        """
        asked = AssignmentRequest.decode_request(command.body)
        nothing = answer(command, body=Assignments().encode())
        if self._topics.get(asked.topic) is None:
            return nothing
        readable = await self._routes.find(asked.topic)
        if readable is None:
            return nothing
        mode = self._modes.get(asked.topic, asked.consumer_group)
        is_broadcasting = asked.message_model == MessageModel.BROADCASTING
        group = self._clients.consumers.get(asked.consumer_group)
        if group is None and not is_broadcasting:
            return nothing
        members = [] if group is None else sorted(group.client_ids, key=utf16_key)
        queues = self._divided(asked, mode, _queues(asked.topic, readable), members, is_broadcasting)
        return answer(command, body=Assignments.of(queues, mode.mode).encode())

    def _divided(
        self,
        asked: AssignmentRequest,
        mode: RequestMode,
        queues: list[MessageQueue],
        members: list[str],
        is_broadcasting: bool,
    ) -> list[MessageQueue]:
        if is_broadcasting or not queues:
            return queues
        strategy = STRATEGIES.get(asked.strategy_name)
        if strategy is None:
            raise Refused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"unsupported strategy [{asked.strategy_name[:80]}], brokers know {', '.join(STRATEGIES)}; "
                f"the members of {asked.consumer_group} assign the queues of {asked.topic}",
            )
        if mode.mode == POP_MODE:
            return pop_shares(strategy, asked, queues, members, mode.pop_share_queue_num)
        return strategy.allocate(asked.consumer_group, asked.client_id, queues, members)


def _queues(topic: str, readable: Mapping[str, int]) -> list[MessageQueue]:
    """The queues in the order in which all members assign them. Raises `Refused` when there are too many."""
    count = sum(readable.values())
    if count > QUEUES_MAX:
        raise Refused(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"topic {topic} has {count} queues, and a broker assigns up to {QUEUES_MAX}; the members "
            f"assign them",
        )
    return [
        MessageQueue(topic, name, i)
        for name in sorted(readable, key=utf16_key)
        for i in range(readable[name])
    ]
