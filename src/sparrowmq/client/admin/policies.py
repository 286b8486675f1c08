"""Policies of managed groups on SparrowMQ's brokers: members, owners of queues, pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.admin.tables import apart
from sparrowmq.client.cluster.broker_api import check, command
from sparrowmq.core.errors import BrokerError, ClientError, NoFencesError, TransportError
from sparrowmq.core.names import check_group
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.protocol.managed import (
    GroupPolicies,
    GroupPolicy,
    GroupPolicyRequest,
    PauseRule,
    QueueGrant,
)

__all__ = ["GroupPolicies", "GroupPolicy", "PauseRule", "PolicyAdmin", "QueueGrant"]

ACL_REFUSAL: Final = "AclException"
POLICY_SECONDS: Final = 10.0
"""How long a broker may take to store a policy on disk."""


class PolicyAdmin(AdminCalls):
    """The part of `Admin` for policies of groups."""

    async def set_group_policy(
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

    async def delete_group_policy(self, group: str, *, cluster: str | None = None) -> None:
        """Remove a group's policy from brokers. Does nothing where there is none."""
        check_group(group)
        header = GroupPolicyRequest(group=group)
        await self._tell_policy(cluster, RequestCode.DELETE_GROUP_POLICY, header)

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """The policies of one group or of all, by broker name; Apache's brokers are left out."""
        if group is not None:
            check_group(group)
        header = GroupPolicyRequest(group=group or "")
        masters = await self._cluster_masters(None)
        answers = await asyncio.gather(*(self._policies_at(address, header) for address in masters.values()))
        return {name: found for name, found in zip(masters, answers, strict=True) if found is not None}

    async def consume_refusal(self, code: int, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not allow the sender of a request to consume the topics that it names for the group;
        empty if they do. `code` is that of a join or a report; `fields` and `body` are those of the request,
        with its signature.

        The request is passed on as the sender signed it, so the broker checks the sender's account and
        permissions, as for a pull. Apache's brokers, which do not know such requests, are asked for the
        group's members instead, and check the permission for that. Raises `TransportError` when no broker
        answers.
        """
        error = None
        for address in (await self._cluster_masters(None)).values():
            try:
                answer = await self._in_words_of(address, code, fields, body)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    listed = RequestCode.GET_CONSUMER_LIST_BY_GROUP
                    answer = await self._in_words_of(address, listed, fields, body)
            except TransportError as failed:
                error = failed
                continue
            text = answer.remark or ""
            # RocketMQ 5.x has a code for it, 4.x only a text.
            is_refused = answer.code == ResponseCode.NO_PERMISSION or ACL_REFUSAL in text
            return (text or "the broker refuses it") if is_refused else ""
        raise error or ClientError("no broker is registered")

    async def _in_words_of(self, address: str, code: int, fields: Mapping[str, str], body: bytes) -> Command:
        """Pass on a request; it is encoded here, so that it is not signed with this client's account."""
        remoting = self._running().remoting
        request = Command(code, remoting.next_opaque(), ext=dict(fields), body=body)
        return await remoting.call_encoded(address, request.opaque, encode(request), POLICY_SECONDS, code)

    async def _policies_at(self, address: str, header: GroupPolicyRequest) -> GroupPolicies | None:
        try:
            body = await self._ask(address, RequestCode.GET_GROUP_POLICIES, header)
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
        masters = await self._cluster_masters(cluster)
        if broker is not None:
            if broker not in masters:
                raise ClientError(f"no broker {broker!r} is registered; see `sparrow cluster list`")
            masters = {broker: masters[broker]}
        remoting = self._running().remoting

        async def tell(address: str) -> None:
            request = command(code, header, body)
            check(await remoting.call(address, request, POLICY_SECONDS), address, code)

        told = await asyncio.gather(*(tell(at) for at in masters.values()), return_exceptions=True)
        for name, error in zip(masters, told, strict=True):
            if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoFencesError(
                    f"the broker {name!r} is not a SparrowMQ broker and does not enforce group policies; "
                    f"give a cluster of SparrowMQ brokers"
                ) from error
            if error is not None:
                raise error
