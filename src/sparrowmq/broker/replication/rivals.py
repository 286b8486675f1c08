"""A master without a coordinator checks whether another broker became master of its name (broker:12).

A slave may have been promoted while this broker was down or disconnected. The name servers keep the master
with the higher epoch; this broker asks them, and becomes that master's slave. It cannot know this at once, so
a person has to make sure that an old master does not run; with a coordinator, leases do this.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from msgspec import field

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.bodies.base import Body
from sparrowmq.protocol.bodies.replicas import MASTER, SLAVE, ReplicaOrders, ReplicaState
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command

if TYPE_CHECKING:
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.transport.client import RemotingClient

log = logging.getLogger("sparrowmq.broker")
RIVAL_SECONDS: Final = 5.0
"""How often a master checks."""
CALL_SECONDS: Final = 1.0


class _MemberGroup(Body, frozen=True):
    """The answer to GET_BROKER_MEMBER_GROUP (901), of which only the addresses matter."""

    broker_addrs: dict[str, str] = field(default_factory=dict)


class _MemberGroupAnswer(Body, frozen=True):
    broker_member_group: _MemberGroup = _MemberGroup()


class Rivals:
    """Looks for a later master of the same name."""

    def __init__(self, client: RemotingClient, settings: BrokerSettings, reign: Reign) -> None:
        self.every = RIVAL_SECONDS
        self._client = client
        self._settings = settings
        self._reign = reign

    async def look(self) -> None:
        """Ask the name servers and the other master, and follow it if its reign is later. Brokers that do not
        answer are asked again the next time.
        """
        reign = self._reign
        for server in self._settings.name_servers:
            if reign.is_slave or reign.record.is_managed or reign.is_changing:
                return
            try:
                members = await self._members(server)
                rival = members.get("0")
                if rival is None or rival == reign.address:
                    continue
                self._judge(await self._state(rival), members)
            except SparrowError as error:
                log.debug("cannot ask for another master: %s", error)

    async def _members(self, server: str) -> dict[str, str]:
        settings = self._settings
        ext = {"clusterName": settings.broker_cluster_name, "brokerName": settings.broker_name}
        answer = await self._client.call(server, Command(Code.GET_BROKER_MEMBER_GROUP, ext=ext), CALL_SECONDS)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return {}
        return _MemberGroupAnswer.decode(answer.body).broker_member_group.broker_addrs

    async def _state(self, address: str) -> ReplicaState | None:
        answer = await self._client.call(address, Command(Code.GET_REPLICA_STATE), CALL_SECONDS)
        return ReplicaState.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None

    def _judge(self, rival: ReplicaState | None, members: dict[str, str]) -> None:
        reign, settings = self._reign, self._settings
        if rival is None or rival.role != MASTER or rival.epoch <= reign.epoch:
            return
        log.warning(
            "%s is master of %s in epoch %d, this broker was in epoch %d: it becomes its slave",
            one_line(rival.address),
            settings.broker_name,
            rival.epoch,
            reign.epoch,
        )
        taken = {number for number, address in members.items() if address != reign.address}
        number = next(n for n in range(1, len(taken) + 2) if str(n) not in taken)
        reign.obey(
            ReplicaOrders(
                cluster_name=settings.broker_cluster_name,
                broker_name=settings.broker_name,
                epoch=rival.epoch,
                role=SLAVE,
                broker_id=number,
                master_address=rival.address,
                master_ha_address=rival.ha_address,
            )
        )
