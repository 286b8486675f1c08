"""Accounts of callers: checks the signatures of the gRPC API with the brokers' users.

The proxy has no users. With `authenticationEnabled` it fetches a user and its password from a broker, for
which its own account must be a super user, and checks the caller's signature. Requests to brokers are then
signed with the caller's account, so the brokers' policies decide what it may do, and the proxy needs no
policies.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from sparrowmq.client.cluster.broker_api import command
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.security import ACTING
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, ProxyRefusal, SparrowError
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies.access import UserInfo
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.base.limits import CALL_SECONDS
from sparrowmq.proxy.cluster.fresh import Fresh
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.transport.signing import Credentials

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
ALGORITHM: Final = "MQv2-HMAC-SHA1"
KEPT_SECONDS: Final = 20.0
"""How long a user is kept: a changed password takes effect after this time."""
NAME_CHARS_MAX: Final = 255


def api_signature(secret: str, date_time: str) -> str:
    """The signature that a client sends with `date_time`."""
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()


class Accounts:
    """Finds the account of a call."""

    def __init__(self, instance: ClientInstance, clock: Clock) -> None:
        self._instance = instance
        self._users: Fresh[UserInfo | None] = Fresh(self._fetch, clock, seconds=KEPT_SECONDS)

    async def check(self, caller: GrpcCaller) -> str:
        """The caller's user, whose account signs the following requests of this call. Refuses a wrong
        signature.
        """
        name, given = _given(caller)
        user = await self._users.get(name)
        secret = "" if user is None or user.user_status == "disable" else user.password or ""
        expected = api_signature(secret, caller.metadata.get(DATE_TIME, ""))
        if not secret or not hmac.compare_digest(expected.encode(), given.lower().encode()):
            raise ProxyRefusal(Code.UNAUTHORIZED, f"the user {name!r} is unknown, or its signature is wrong")
        ACTING.set(Credentials(name, secret))
        return name

    async def _fetch(self, name: str) -> UserInfo | None:
        """The user as a broker knows it; None for one that is not there."""
        asked = command(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await self._instance.name_servers.call(asked, CALL_SECONDS)
        trouble: SparrowError = ProxyRefusal(
            Code.UNAUTHORIZED, "no broker that knows the users can be reached now"
        )
        for broker in bodies.ClusterInfo.decode(answer.body).brokers.values():
            if broker.master is None:
                continue
            try:
                return await self._user_at(broker.master, name)
            except SparrowError as error:
                trouble = error
        raise trouble

    async def _user_at(self, address: str, name: str) -> UserInfo | None:
        asked = Command(RequestCode.AUTH_GET_USER, ext={"username": name})
        answer = await self._instance.remoting.call(address, asked, CALL_SECONDS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", address=address, request="AUTH_GET_USER")
        if not answer.body:
            return None
        user = UserInfo.decode(answer.body)
        if user.password is None:
            raise ProxyRefusal(
                Code.INTERNAL_SERVER_ERROR,
                "the proxy's own account is not a super user, so brokers do not show it the secrets of users",
            )
        return user


def _given(caller: GrpcCaller) -> tuple[str, str]:
    """The user's name and the signature that a call brings."""
    scheme, _, rest = caller.metadata.get(AUTHORIZATION, "").partition(" ")
    pairs = (part.strip().partition("=") for part in rest.split(","))
    fields = {name: value for name, _, value in pairs}
    name, signature = fields.get("Credential", "").partition("/")[0], fields.get("Signature", "")
    if scheme != ALGORITHM or not name or len(name) > NAME_CHARS_MAX or not signature:
        raise ProxyRefusal(
            Code.UNAUTHORIZED,
            f"the call is not signed ({ALGORITHM}): give the client its access key and secret",
        )
    return name, signature
