"""Policies of managed groups on SparrowMQ's brokers: members, owners of queues, pauses."""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.admin.calls import AdminPart, apart, at_each
from sparrowmq.client.cluster.broker_api import check, command
from sparrowmq.core.errors import BrokerError, ClientError, NoFencesError
from sparrowmq.core.names import check_group
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.managed import (
    GroupPolicies,
    GroupPolicy,
    GroupPolicyRequest,
    PauseRule,
    QueueGrant,
)

__all__ = ["GroupPolicies", "GroupPolicy", "PauseRule", "PolicyAdmin", "QueueGrant"]

POLICY_SECONDS: Final = 10.0
"""How long a broker may take to store a policy on disk."""


class PolicyAdmin(AdminPart):
    """The policies of managed groups."""

    async def set(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have every broker, those of one cluster, or one, enforce a policy. It is on disk when this returns.

        Setting the same policy again is allowed, so a caller in doubt can repeat the call. Raises
        `BrokerError` with code 90012 when a later policy is in force or a generation would decrease, and
        `ClientError` for Apache's brokers, which cannot enforce policies. Brokers that accepted the policy
        then keep it.
        """
        check_group(policy.group)
        await self._tell_policy(cluster, RequestCode.PUT_GROUP_POLICY, body=policy.encode(), broker=broker)

    async def delete(self, group: str, *, cluster: str | None = None) -> None:
        """Remove a group's policy from brokers. Does nothing where there is none."""
        check_group(group)
        header = GroupPolicyRequest(group=group)
        await self._tell_policy(cluster, RequestCode.DELETE_GROUP_POLICY, header)

    async def _policies_at(self, address: str, header: GroupPolicyRequest) -> GroupPolicies | None:
        try:
            body = await self._calls.ask(address, RequestCode.GET_GROUP_POLICIES, header)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return await apart(GroupPolicies.decode, body)

    async def _tell_policy(
        self,
        cluster: str | None,
        code: RequestCode,
        header: headers.Header | None = None,
        body: bytes = b"",
        broker: str | None = None,
    ) -> None:
        masters = await self._calls.cluster_masters(cluster)
        if broker is not None:
            if broker not in masters:
                raise ClientError(f"no broker {broker!r} is registered; see `sparrow cluster list`")
            masters = {broker: masters[broker]}
        remoting = self._calls.running().remoting

        async def tell(name: str, address: str) -> None:
            request = command(code, header, body)
            answer = await remoting.call(address, request, POLICY_SECONDS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoFencesError(
                    f"the broker {name!r} is not a SparrowMQ broker and does not enforce group policies; "
                    f"give a cluster of SparrowMQ brokers"
                )
            check(answer, address, code)

        await at_each({name: tell(name, address) for name, address in masters.items()})

    async def list(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """The policies of one group or of all, by broker name; Apache's brokers are left out."""
        if group is not None:
            check_group(group)
        header = GroupPolicyRequest(group=group or "")
        masters = await self._calls.cluster_masters(None)
        answers = await asyncio.gather(*(self._policies_at(address, header) for address in masters.values()))
        return {name: found for name, found in zip(masters, answers, strict=True) if found is not None}
