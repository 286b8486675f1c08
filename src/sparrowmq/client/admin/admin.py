"""The asyncio admin client (client:F). Works with SparrowMQ and Apache servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from sparrowmq.client.admin.access import UserAdmin
from sparrowmq.client.admin.brokers import BrokerAdmin
from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.admin.dead_letters import DeadLetterAdmin
from sparrowmq.client.admin.former import former_name
from sparrowmq.client.admin.groups import GroupAdmin
from sparrowmq.client.admin.holds import HoldAdmin
from sparrowmq.client.admin.messages import MessageAdmin
from sparrowmq.client.admin.name_servers import NameServerAdmin
from sparrowmq.client.admin.policies import PolicyAdmin
from sparrowmq.client.admin.producers import ProducerAdmin
from sparrowmq.client.admin.replicas import ReplicaAdmin
from sparrowmq.client.admin.topics import TopicAdmin
from sparrowmq.client.base.lifecycle import ClientObject
from sparrowmq.client.base.settings import ClientSettings, settings_of

if TYPE_CHECKING:
    from sparrowmq.client.base.options import ClientOptions


class Admin(ClientObject):
    """Queries and administers clusters.

        async with Admin(name_server="127.0.0.1:9876") as admin:
            await admin.topics.create("TopicTest", queues=8)
            await admin.groups.reset("billing", "TopicTest", "first")

    Its calls are in parts: `topics`, `groups`, `brokers`, `messages`, `dead_letters`, `producers`, `users`,
    `holds`, `policies`, `name_servers` and `replicas`. `list` and nouns ask; `create`, `set`, `delete` and
    RocketMQ's verbs change.

    Errors: `BrokerError` with the server's response code, `TransportError`, `NoRouteError` for unknown
    topics.
    """

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`name_servers`, or the keyword `name_server`, is `host:port` (several: separated by `;`), by
        default from the environment. `options` are the fields of `ClientSettings`; they override `settings`.
        """
        given: dict[str, Any] = {**options}
        if name_servers is not None:  # by the name that is free, so that two addresses are refused
            given["namesrv" if given.get("name_server") is not None else "name_server"] = name_servers
        self.settings = settings_of(ClientSettings, settings, given)
        calls = AdminCalls()
        self._life = calls.life
        self.calls = calls
        """The requests of all parts, for tools that need others."""
        self.topics = TopicAdmin(calls)
        self.groups = GroupAdmin(calls)
        self.brokers = BrokerAdmin(calls)
        self.messages = MessageAdmin(calls)
        self.dead_letters = DeadLetterAdmin(calls, self.topics, self.groups)
        self.producers = ProducerAdmin(calls)
        self.users = UserAdmin(calls)
        self.holds = HoldAdmin(calls)
        self.policies = PolicyAdmin(calls)
        self.name_servers = NameServerAdmin(calls)
        self.replicas = ReplicaAdmin(calls)

    if not TYPE_CHECKING:  # or it would take every misspelt name
        __getattr__ = former_name

    def __repr__(self) -> str:
        instance = self.calls.instance
        return f"<Admin {self.state.value} {instance.name_servers if instance else ''!r}>"

    async def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self.calls.start(self.settings)

    async def close(self) -> None:
        """Close the connections. Idempotent; a second call waits for the first."""
        await self.calls.close()
