"""The commands of access control: 3001 to 3010 (remoting:2.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sparrowmq.broker.access.auth_store import refused, spelled
from sparrowmq.broker.access.policies import SUPER
from sparrowmq.broker.tables.changes import ChangeQueue
from sparrowmq.protocol.bodies.access import AclInfo, UserInfo, acls_to_json, users_to_json
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.access.auth_store import AuthStore
    from sparrowmq.transport.connection import Connection


def _done(ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE, ext=ext or {}, body=body)


class AuthAdmin:
    """Changes to users and policies of 5.x access control."""

    def __init__(self, store: AuthStore, changes: ChangeQueue[Command] | None = None) -> None:
        self._store = store
        self._changes = ChangeQueue[Command]() if changes is None else changes

    def table(self) -> dict[int, Any]:
        """Handlers by request code."""
        asked = {
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }
        changed = {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
        }
        return {
            **{code: _answering(handler) for code, handler in asked.items()},
            **{code: self._changing(_answering(handler)) for code, handler in changed.items()},
        }

    def _changing(
        self, handler: Callable[[Connection, Command], Command]
    ) -> Callable[[Connection, Command], Command | Awaitable[Command]]:
        """Runs the handler in a thread: it writes the whole file, and its checks must stay valid."""

        def answer(connection: Connection, command: Command) -> Command | Awaitable[Command]:
            return self._changes.run(partial(handler, connection, command))

        return answer

    def create_user(self, command: Command) -> Command:
        """3001."""
        user = self._user(command)
        self._check_super(command, "create", user.user_type == SUPER)
        self._store.create_user(user)
        return _done()

    def update_user(self, command: Command) -> Command:
        """3002: fields that are not given stay unchanged."""
        user = self._user(command)
        concerns = user.user_type == SUPER or self._store.is_super(user.username)
        self._check_super(command, "update", concerns)
        self._store.update_user(user)
        return _done()

    def delete_user(self, command: Command) -> Command:
        """3003: its policies are deleted too."""
        name = command.ext.get("username", "")
        self._check_super(command, "delete", self._store.is_super(name))
        self._store.delete_user(name)
        return _done()

    def get_user(self, command: Command) -> Command:
        """3004: an unknown user is answered without a body."""
        user = self._store.tables.users.get(command.ext.get("username", ""))
        return _done(body=b"" if user is None else self._shown(command, [user])[0].encode())

    def list_users(self, command: Command) -> Command:
        """3005: users whose names contain `filter`."""
        users = self._store.users(command.ext.get("filter", ""))
        return _done(body=users_to_json(self._shown(command, users)))

    def put_acl(self, command: Command) -> Command:
        """3006 and 3007."""
        acl = AclInfo.decode_request(command.body)
        self._store.put_acl(replace(acl, subject=command.ext.get("subject") or acl.subject))
        return _done()

    def delete_acl(self, command: Command) -> Command:
        """3008: all policies of a subject, or the entry for one resource."""
        ext = command.ext
        self._store.delete_acl(ext.get("subject", ""), ext.get("policyType"), ext.get("resource"))
        return _done()

    def get_acl(self, command: Command) -> Command:
        """3009: a subject without policies is answered without a body."""
        acl = self._store.acl(command.ext.get("subject", ""))
        return _done(body=b"" if acl is None else acl.encode())

    def list_acls(self, command: Command) -> Command:
        """3010: filtered by parts of subjects and resources."""
        ext = command.ext
        found = self._store.list_acls(ext.get("subjectFilter", ""), ext.get("resourceFilter", ""))
        return _done(body=acls_to_json(found))

    def _user(self, command: Command) -> UserInfo:
        user = UserInfo.decode_request(command.body)
        return spelled(replace(user, username=command.ext.get("username") or user.username))

    def _shown(self, command: Command, users: list[UserInfo]) -> list[UserInfo]:
        """Passwords are only for super users: anyone else who saw them could become one."""
        if self._by_super(command):
            return users
        return [replace(user, password=None) for user in users]

    def _check_super(self, command: Command, what: str, concerns_super: bool) -> None:
        """Only a super user may change super users, so no other user can become one."""
        if concerns_super and not self._by_super(command):
            raise refused(f"The super user can only be {what} by super user")

    def _by_super(self, command: Command) -> bool:
        """Whether a super user signed the request: without a required signature, the name proves nothing."""
        caller = self._store.tables.caller("", command)
        return caller.is_account and self._store.is_super(caller.name)


def _answering(handler: Callable[[Command], Command]) -> Callable[[Connection, Command], Command]:
    def answer(connection: Connection, command: Command) -> Command:
        try:
            return handler(command)
        except Refused as error:
            return error.answer()

    return answer
