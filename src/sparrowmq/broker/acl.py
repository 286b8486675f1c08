"""Access control as RocketMQ 4.x has it: accounts, permissions, and who may do what (remoting:7.2).

Pure decisions. `acl_files` reads `plain_acl.yml` into a `PlainAcl`; `access` asks it about each request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

from sparrowmq.broker.addresses import Matches, address_pattern
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import INNER_TOPICS, RETRY_PREFIX, retry_topic
from sparrowmq.protocol.bodies import HeartbeatData, LockBatchRequestBody
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import ACCESS_KEY, verify

KEY_CHARS_MIN: Final = 7
"""Access keys and secret keys must be longer than 6 characters."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

ADMIN_CODES: Final = frozenset(
    {17, 18, 25, 50, 51, 53, 200, 207, 215, 222, 225, 306, 314, 316, 323, 329, 353, 513}
)
"""Requests that only admins may make. The reference names 17, 25, 200, 207 and 215. What else is here it
leaves to every account: 50 to 53 let anybody become admin, 222, 314, 323 and 353 change what others consume,
306, 316 and 329 delete files, and 18, 225 and 513 do in newer versions what 17 and 200 do."""


class Perm(IntFlag):
    """What an account may do with a topic or group."""

    DENY = 1
    PUB = 4
    SUB = 8


_PERMS: Final = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}


def parse_perm(text: str | None) -> Perm:
    """The permission in a text; nothing is DENY. Raises `SettingsError` on anything else."""
    if text is None or not text.strip():
        return Perm.DENY
    perm = _PERMS.get(text.strip())
    if perm is None:
        raise SettingsError(f"{text!r} is no permission; write DENY, PUB, SUB or PUB|SUB")
    return perm


@dataclass(frozen=True, slots=True)
class Account:
    """One account; `resources` are permissions by topic, groups as their retry topics."""

    access_key: str
    secret_key: str = field(repr=False)
    white: Matches = field(repr=False)
    admin: bool = False
    default_topic: Perm = Perm.DENY
    default_group: Perm = Perm.DENY
    resources: Mapping[str, Perm] | None = None


_ACCOUNT_NAMES: Final = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
        *("topicPerms", "groupPerms"),
    }
)


def parse_account(entry: Any) -> Account:
    """One entry of `accounts`, all scalars as text. Raises `SettingsError`, which tells no secret."""
    if not isinstance(entry, Mapping):
        raise SettingsError("an account is a mapping with accessKey and secretKey")
    access_key, secret_key = _text(entry, "accessKey"), _text(entry, "secretKey")
    if len(access_key) < KEY_CHARS_MIN or len(secret_key) < KEY_CHARS_MIN:
        raise SettingsError(
            f"the account {access_key!r}: accessKey and secretKey need {KEY_CHARS_MIN} characters or more"
        )
    unknown = sorted(set(entry) - _ACCOUNT_NAMES)
    if unknown:
        raise SettingsError(f"the account {access_key!r} has unknown members: {', '.join(map(str, unknown))}")
    admin = _text(entry, "admin").lower()
    if admin not in ("", "true", "false"):
        raise SettingsError(f"the account {access_key!r}: admin is {admin!r}; write true or false")
    try:
        resources = {
            **parse_resources(_list(entry, "topicPerms"), str),
            **parse_resources(_list(entry, "groupPerms"), retry_topic),
        }
        return Account(
            access_key,
            secret_key,
            address_pattern(_text(entry, "whiteRemoteAddress")),
            admin == "true",
            parse_perm(_text(entry, "defaultTopicPerm")),
            parse_perm(_text(entry, "defaultGroupPerm")),
            resources or None,
        )
    except SettingsError as error:
        raise SettingsError(f"the account {access_key!r}: {error}") from None


def parse_resources(entries: Sequence[Any], name: Callable[[str], str]) -> dict[str, Perm]:
    """Permissions of entries `resource=PERM`; `name` makes the key of a resource."""
    found = {}
    for entry in entries:
        resource, equals, perm = str(entry).partition("=")
        if not equals or not resource.strip():
            raise SettingsError(f"{entry!r} is no permission of a resource; write name=PUB|SUB")
        found[name(resource.strip())] = parse_perm(perm)
    return found


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SettingsError(f"{name} must be a text")
    return value.strip()


def _list(entry: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = entry.get(name) or ()
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{name} must be a list of name=PERM")
    return value


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """All accounts, and the addresses that need none."""

    accounts: Mapping[str, Account]
    white: Sequence[Matches] = ()

    def refusal(self, host: str, command: Command) -> str | None:
        """Why a request from `host` may not be done, in the reference's words, or None."""
        if any(matches(host) for matches in self.white):
            return None
        key = command.ext.get(ACCESS_KEY)
        if key is None:
            return "No accessKey is configured"
        account = self.accounts.get(key)
        if account is None:
            return f"No acl config for {key}"
        if account.white(host):
            return None
        if not verify(command.ext, command.body, account.secret_key):
            return f"Check signature failed for accessKey={key}"
        return permission_refusal(account, command.code, needs(command))

    def topic_refusal(self, host: str, command: Command, needed: Mapping[str, Perm]) -> str | None:
        """Why a request that passed may not be done to these topics, or None."""
        account = self.accounts.get(command.ext.get(ACCESS_KEY, ""))
        if any(matches(host) for matches in self.white) or (account is not None and account.white(host)):
            return None
        if account is None:
            return "No accessKey is configured"
        return permission_refusal(account, command.code, needed)


def permission_refusal(account: Account, code: int, needed: Mapping[str, Perm]) -> str | None:
    """Why an account may not make a request with these needs, or None."""
    if code in ADMIN_CODES and not account.admin:
        return f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
    if account.admin and account.resources is None:
        return None
    owned = account.resources or {}
    for resource, perm in needed.items():
        if resource == TRACE_TOPIC and perm is Perm.PUB:
            continue  # traces of messages need no permission of their own
        if resource in INNER_TOPICS and not account.admin:
            return f"Need admin permission for topic:{resource}, but accessKey={account.access_key} is not"
        is_group = resource.startswith(RETRY_PREFIX)
        has = owned.get(resource)
        default = has is None
        if has is None:
            has = account.default_group if is_group else account.default_topic
        if has & Perm.DENY or not has & perm:
            shown = f"group:{resource[len(RETRY_PREFIX) :]}" if is_group else f"topic:{resource}"
            return f"No {'default ' if default else ''}permission for {shown}"
    return None


def needs(command: Command) -> dict[str, Perm]:
    """What permissions a request needs: topics, and groups as their retry topics.

    Raises the `ProtocolError` family for a body that cannot be read.
    """
    ext, code = command.ext, command.code
    if code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
        old = code == Code.SEND_MESSAGE
        topic = ext.get("topic" if old else "b", "")
        if topic.startswith(RETRY_PREFIX):
            return {topic: Perm.SUB}
        return {topic: Perm.PUB}
    if code == Code.HEART_BEAT:
        found = {}
        for consumer in HeartbeatData.decode(command.body).consumers:
            found[retry_topic(consumer.group)] = Perm.SUB
            found.update({data.topic: Perm.SUB for data in consumer.subscriptions})
        return found
    if code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.UPDATE_CONSUMER_OFFSET):
        return {ext.get("topic", ""): Perm.SUB, retry_topic(ext.get("consumerGroup", "")): Perm.SUB}
    if code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        body = LockBatchRequestBody.decode(command.body)
        return {
            retry_topic(body.consumer_group or ""): Perm.SUB,
            **{queue.topic: Perm.SUB for queue in body.queues},
        }
    if code == Code.RECALL_MESSAGE:
        return {ext.get("topic", ""): Perm.PUB}
    if code == Code.CONSUME_MESSAGE_DIRECTLY:
        return {retry_topic(ext.get("consumerGroup", "")): Perm.SUB}
    if code == Code.CONSUMER_SEND_MSG_BACK:
        return {retry_topic(ext.get("group", "")): Perm.SUB}
    if code == Code.QUERY_MESSAGE:
        return {ext.get("topic", ""): Perm.SUB}
    if code == Code.GET_CONSUMER_LIST_BY_GROUP:
        return {retry_topic(ext.get("consumerGroup", "")): Perm.SUB}
    if code == Code.UNREGISTER_CLIENT and ext.get("consumerGroup"):
        return {retry_topic(ext["consumerGroup"]): Perm.SUB}
    return {}
