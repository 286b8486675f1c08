"""A slave's ordinary requests to its master: whether it may follow, and its tables (broker:12.4)."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.replication.comparison import (
    CannotFollowError,
    MasterDamagedError,
    MasterFacts,
    SlaveFacts,
    check,
    check_same_record,
)
from sparrowmq.broker.replication.frames import FROM_FIRST_FILE
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.bodies import KVTable
from sparrowmq.protocol.bodies.replicas import EpochStart, FollowAnswer, FollowRequest, ReplicaState
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode, request_name
from sparrowmq.protocol.frame import Command

if TYPE_CHECKING:
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.log.raw_log import RawLog
    from sparrowmq.store.log_copy import LogCopy
    from sparrowmq.transport.client import RemotingClient

log = logging.getLogger("sparrowmq.broker")
CALL_SECONDS_MAX: Final = 10.0
NO_RECORD: Final = "can not find message by the offset"
"""How RocketMQ's and our brokers' answers begin when no record begins at a position."""


class MasterCalls:
    """Requests of one slave to its master."""

    def __init__(self, client: RemotingClient, settings: BrokerSettings, raw_log: RawLog) -> None:
        self._client = client
        self._settings = settings
        self._log = raw_log

    async def body(self, address: str, code: Code) -> bytes | None:
        """The body of an answer; None when the master does not serve the request or refuses it.

        Raises `TransportError` when it does not answer.
        """
        answer = await self._client.call(address, Command(code), CALL_SECONDS_MAX)
        if answer.code != ResponseCode.SUCCESS:
            log.info("the master answers %s with %d: %s", request_name(code), answer.code, answer.remark)
            return None
        return answer.body

    async def state(self, address: str) -> ReplicaState | None:
        """The master's state; None if it does not serve the request, like RocketMQ's. Raises `BrokerError`
        when it refuses it, `TransportError` when it does not answer, `ProtocolError` when its answer cannot
        be read."""
        answer = await self._client.call(address, Command(Code.GET_REPLICA_STATE), CALL_SECONDS_MAX)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code != ResponseCode.SUCCESS:
            what = request_name(Code.GET_REPLICA_STATE)
            raise BrokerError(answer.code, answer.remark or "", address=address, request=what)
        return ReplicaState.decode(answer.body)

    async def log_end(self, address: str) -> int:
        """The end of the master's log; 0 when it does not tell. Raises `TransportError`."""
        body = await self.body(address, Code.GET_BROKER_RUNTIME_INFO)
        if body is None:
            return 0
        return MasterFacts.of({}, KVTable.decode(body).table).end or 0

    async def checked(self, address: str, copy: LogCopy) -> MasterFacts:
        """The master's description of itself. Raises `CannotFollowError` when this broker must not follow it,
        and `TransportError` when it does not answer.
        """
        config = await self.body(address, Code.GET_BROKER_CONFIG)
        runtime = await self.body(address, Code.GET_BROKER_RUNTIME_INFO)
        facts = MasterFacts.of(
            {} if config is None else _properties(config),
            {} if runtime is None else KVTable.decode(runtime).table,
        )
        check(self._facts(copy), facts)
        await self.check_last(address, facts.start)
        return facts

    async def introduce(
        self, address: str, copy: LogCopy, reign: Reign, *, from_first: bool
    ) -> FollowAnswer | None:
        """Introduce this slave to a master that reports its reigns; None for one that does not.

        Raises `CannotFollowError` when this broker must not follow it, `TransportError` when it does not
        answer, `ProtocolError` when its answer cannot be read, `StoreError` when the store's text cannot be
        saved.
        """
        settings = self._settings
        await reign.keep()
        request = FollowRequest(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            address=reign.address,
            store=reign.record.store,
            epochs=[EpochStart(*one) for one in reign.epochs.starts],
            epoch=reign.record.epoch,
            max_offset=copy.position,
            last_record=self._log.last_record,
            position=copy.position if not copy.is_empty else FROM_FIRST_FILE if from_first else 0,
        )
        command = Command(Code.FOLLOW_MASTER, body=request.encode())
        answer = await self._client.call(address, command, CALL_SECONDS_MAX)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code == ResponseCode.LOG_DAMAGED:
            raise MasterDamagedError(answer.remark or "its log is damaged")
        if answer.code != ResponseCode.SUCCESS:
            raise CannotFollowError(f"it answers {answer.code}: {answer.remark}")
        found = FollowAnswer.decode(answer.body)
        facts = MasterFacts(
            found.cluster_name, found.broker_name, found.broker_role, found.file_bytes, found.min_offset
        )
        check(self._facts(copy), facts)
        return found

    def _facts(self, copy: LogCopy) -> SlaveFacts:
        settings = self._settings
        return SlaveFacts(
            settings.broker_cluster_name,
            settings.broker_name,
            settings.mapped_file_size_commit_log,
            copy.position,
            copy.is_empty,
        )

    async def check_last(self, address: str, start: int | None) -> None:
        """Compare this broker's last record with the master's, if the master shows records; its log begins at
        `start`, None if it did not tell. Raises `CannotFollowError` and `TransportError`."""
        position = self._log.last_record
        own = self._record(position)
        if own is None:
            return
        command = Command(Code.VIEW_MESSAGE_BY_ID, ext={"offset": str(position)})
        answer = await self._client.call(address, command, CALL_SECONDS_MAX)
        if answer.code == ResponseCode.SUCCESS:
            check_same_record(position, own, answer.body)
        elif start is not None and position >= start and (answer.remark or "").startswith(NO_RECORD):
            check_same_record(position, own, None)

    def _record(self, position: int) -> bytes | None:
        if position < 0:
            return None
        piece = self._log.piece(position, self._log.end - position)
        if piece is None or len(piece) < struct.calcsize(">i"):
            return None
        (size,) = struct.unpack_from(">i", piece)
        return bytes(piece[:size])


def _properties(body: bytes) -> dict[str, str]:
    """Java properties; lines that are not `name=value` are left out."""
    lines = body.decode("utf-8", "replace").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}
