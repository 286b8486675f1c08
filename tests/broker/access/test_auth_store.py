"""Users and policies on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.core.errors import SettingsError, StoreError
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sparrowmq.protocol.refusals import Refused
from sparrowmq.store.tables.config_file import ConfigFile

ALICE = UserInfo("alice", "secret12")
ENTRY = PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")


def acl(*entries: PolicyEntryInfo, subject: str = "User:alice") -> AclInfo:
    return AclInfo(subject, [PolicyInfo(None, list(entries))])


@pytest.fixture
def store(tmp_path: Path) -> AuthStore:
    return AuthStore(tmp_path / "auth")


def again(store: AuthStore, tmp_path: Path) -> AuthStore:
    """The store after a restart."""
    found = AuthStore(tmp_path / "auth")
    assert found.tables.users == store.tables.users
    assert found.acls == store.acls
    assert found.tables.policies == store.tables.policies
    return found


class TestUsers:
    @pytest.mark.proves("remoting:7.3")
    def test_user_is_created_changed_and_deleted(self, store: AuthStore, tmp_path: Path) -> None:
        store.create_user(ALICE)
        assert store.users() == [UserInfo("alice", "secret12", "Normal", "enable")]
        store.update_user(UserInfo("alice", user_status="DISABLE"))
        assert again(store, tmp_path).users("ali") == [UserInfo("alice", "secret12", "Normal", "disable")]
        assert store.users("bob") == []
        store.put_acl(acl(ENTRY))
        store.delete_user("alice")
        store.delete_user("alice")
        assert again(store, tmp_path).users() == []
        assert store.acls == {}

    @pytest.mark.parametrize("blank", ["", " ", None])
    def test_blank_password_is_refused(self, store: AuthStore, blank: str | None) -> None:
        with pytest.raises(Refused, match="password can not be blank"):
            store.create_user(UserInfo("bob", blank))
        store.create_user(ALICE)
        store.update_user(UserInfo("alice", blank, user_status="disable"))
        assert store.users() == [UserInfo("alice", "secret12", "Normal", "disable")]

    def test_files_are_readable_only_by_the_owner(self, store: AuthStore, tmp_path: Path) -> None:
        store.create_user(ALICE)
        store.put_acl(acl(ENTRY))
        for name in ("users.json", "acls.json"):
            assert (tmp_path / "auth" / name).stat().st_mode & 0o777 == 0o600

    @pytest.mark.proves("remoting:2.7")
    def test_refusals_have_the_references_texts(self, store: AuthStore) -> None:
        store.create_user(ALICE)
        for user, said in (
            (ALICE, "The user is existed"),
            (UserInfo(" ", "x"), "username can not be blank"),
            (UserInfo("bob"), "password can not be blank"),
            (UserInfo("bob", "x", "King"), "userType King is illegal"),
            (UserInfo("bob", "x", "Normal", "asleep"), "userStatus asleep is illegal"),
        ):
            with pytest.raises(Refused) as error:
                store.create_user(user)
            assert str(error.value) == said
        with pytest.raises(Refused, match="The user is not exist"):
            store.update_user(UserInfo("bob", "x"))
        assert [user.username for user in store.users()] == ["alice"]

    def test_passwords_are_not_shown(self) -> None:
        assert "secret12" not in repr(ALICE)

    def test_first_user_is_created(self, store: AuthStore) -> None:
        keys = ("username", "password")
        assert store.make_first(" ", "initAuthenticationUser", keys) is None
        text = '{"username":"root","password":"toor1234"}'
        assert store.make_first(text, "initAuthenticationUser", keys) == ("root", "toor1234")
        assert store.is_super("root")
        store.update_user(UserInfo("root", "changed1"))
        store.make_first(text, "initAuthenticationUser", keys)
        assert store.tables.users["root"].password == "changed1"
        assert not store.is_super("alice")

    @pytest.mark.parametrize("text", ["x", "[]", "{}", '{"username":"a"}', '{"username":"a","password":5}'])
    def test_error_for_an_invalid_first_user_hides_its_value(self, store: AuthStore, text: str) -> None:
        with pytest.raises(SettingsError, check=about(setting="initAuthenticationUser", value=None)):
            store.make_first(text, "initAuthenticationUser", ("username", "password"))


class TestPolicies:
    def test_policy_is_created_changed_and_deleted(self, store: AuthStore, tmp_path: Path) -> None:
        store.create_user(ALICE)
        assert store.acl("User:alice") is None
        store.put_acl(acl(ENTRY))
        store.put_acl(acl(PolicyEntryInfo("Group:g", ["Sub"], ["10.0.0.0/8"], "Deny")))
        found = again(store, tmp_path).acl("User:alice")
        assert found is not None
        assert [entry.resource for entry in found.policies[0].entries] == ["Topic:T", "Group:g"]
        assert store.list_acls("ali", "Group") == [
            AclInfo("User:alice", [PolicyInfo("Custom", [found.policies[0].entries[1]])])
        ]
        assert store.list_acls("bob") == store.list_acls("", "Cluster") == []
        store.delete_acl("User:alice", None, "Topic:T")
        store.delete_acl("User:alice", None, "Group:g")
        assert again(store, tmp_path).acl("User:alice") is None

    def test_all_entries_are_deleted_at_once(self, store: AuthStore) -> None:
        store.create_user(ALICE)
        store.put_acl(acl(ENTRY))
        store.delete_acl("User:alice", None, None)
        assert store.tables.policies == {}

    @pytest.mark.proves("remoting:2.7")
    def test_refusals_have_the_references_texts(self, store: AuthStore) -> None:
        store.create_user(ALICE)
        for wrong, said in (
            (AclInfo(None, []), "The subject is null."),
            (AclInfo("Role:x", []), "The subject is null."),
            (acl(ENTRY, subject="User:bob"), "The subject of User:bob is not exist."),
            (AclInfo("User:alice", []), "The policies is empty."),
            (acl(), "The policy entries is empty."),
            (acl(PolicyEntryInfo("Topic:T", [], None, "Allow")), "The actions is empty."),
        ):
            with pytest.raises(Refused) as error:
                store.put_acl(wrong)
            assert str(error.value) == said
        assert store.acls == store.tables.policies == {}
        for call in (lambda: store.acl("User:bob"), lambda: store.delete_acl("User:bob", None, None)):
            with pytest.raises(Refused, match=r"The subject is not exist\."):
                call()
        with pytest.raises(Refused, match=r"The acl is not exist\."):
            store.delete_acl("User:alice", None, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("users.json", '{"a":{"username":5}}'),
        ("acls.json", '{"User:a":{"policies":[{"entries":[{"resource":"Topic:T"}]}]}}'),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SettingsError, check=about(what="users", value=tmp_path)):
        AuthStore(tmp_path)


class TestFullDisk:
    """A change that cannot be written does not take effect: memory and disk never differ."""

    @pytest.fixture(autouse=True)
    def no_room(self, store: AuthStore, monkeypatch: pytest.MonkeyPatch) -> None:
        store.create_user(ALICE)
        store.put_acl(acl(ENTRY))

        def fail(self: ConfigFile, value: object) -> None:
            raise StoreError("no space left on device")

        monkeypatch.setattr(ConfigFile, "save", fail)

    @pytest.mark.parametrize(
        "change",
        [
            lambda store: store.create_user(UserInfo("bob", "x")),
            lambda store: store.update_user(UserInfo("alice", "other")),
            lambda store: store.delete_user("alice"),
            lambda store: store.put_acl(acl(PolicyEntryInfo("Topic:U", ["Sub"], None, "Allow"))),
            lambda store: store.delete_acl("User:alice", None, None),
        ],
    )
    def test_change_that_cannot_be_written_has_no_effect(
        self,
        store: AuthStore,
        tmp_path: Path,
        change: Callable[[AuthStore], None],
    ) -> None:
        with pytest.raises(StoreError, check=about(args=("no space left on device",))):
            change(store)
        assert [user.password for user in again(store, tmp_path).users()] == ["secret12"]
        assert store.acl("User:alice") is not None
