"""Policies of managed groups at SparrowMQ's brokers: who may consume, who has which queue, what rests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sparrowmq.client.admin_calls import AdminCalls
from sparrowmq.client.requests import check, command
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
"""For a broker to have a policy on disk."""


class PolicyAdmin(AdminCalls):
    """The part of `Admin` for policies of groups."""

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have every broker, those of one cluster, or one, enforce a policy; it is on disk when this returns.

        The same again is welcome, so whoever is not sure sets it once more. Raises `BrokerError` with code
        90012 when a later policy is in force or a generation would go down, and `ClientError` when a broker
        is Apache's, which can enforce nothing. Brokers that took it keep it then.
        """
        check_group(policy.group)
        await self._tell_policy(cluster, RequestCode.PUT_GROUP_POLICY, body=policy.encode(), broker=broker)

    async def delete_group_policy(self, group: str, *, cluster: str | None = None) -> None:
        """Have brokers manage a group no more; nothing happens where they do not."""
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

    async def consume_refusal(self, fields: Mapping[str, str], body: bytes) -> str:
        """Why brokers do not let the sender of a request consume for the group in its `consumerGroup`; empty
        when they do. `fields` and `body` are the request's own, with its signature.

        A broker is asked in the sender's words, so it judges the account and what that may do, as if the
        sender had asked itself. Raises `TransportError` when no broker answers.
        """
        remoting = self._running().remoting
        code, error = RequestCode.GET_CONSUMER_LIST_BY_GROUP, None
        for address in (await self._cluster_masters(None)).values():
            request = Command(code, remoting.next_opaque(), ext=dict(fields), body=body)
            try:
                # Encoded here, because it must not be signed as this client's.
                answer = await remoting.call_encoded(
                    address, request.opaque, encode(request), POLICY_SECONDS, code
                )
            except TransportError as failed:
                error = failed
                continue
            text = answer.remark or ""
            # RocketMQ 5.x has a code for it, 4.x only words.
            is_refused = answer.code == ResponseCode.NO_PERMISSION or ACL_REFUSAL in text
            return (text or "the broker refuses it") if is_refused else ""
        raise error or ClientError("no broker is registered that could say who may consume")

    async def _policies_at(self, address: str, header: GroupPolicyRequest) -> GroupPolicies | None:
        try:
            body = await self._ask(address, RequestCode.GET_GROUP_POLICIES, header)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return GroupPolicies.decode(body)

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
                    f"the broker {name!r} is not SparrowMQ's and enforces no policies of groups; name a "
                    "cluster whose brokers are"
                ) from error
            if error is not None:
                raise error
