"""Accounts of `plain_acl.yml` as users and policies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.broker.access.acl_import import Imported, import_accounts
from sparrowmq.broker.access.auth_needs import Need
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.broker.access.policies import AccessRules, AuthTables, parse_policies
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.bodies.access import UserInfo
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign

REFERENCE = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: 0012345678
  whiteRemoteAddress: 192.168.1.*
  admin: true
"""
"""The file that comes with RocketMQ, but for one secret that YAML would read as a number."""
HOST = "10.1.1.1"
ACCOUNT = "accessKey: rocketmq, secretKey: 12345678"


def imported(text: str) -> Imported:
    return import_accounts({"plain_acl.yml": text.encode()})


def tables(found: Imported) -> AuthTables:
    policies = {subject: parse_policies(acl) for subject, acl in found.acls.items()}
    return AuthTables(dict(found.users), policies)


def allowed(members: str, kind: str, name: str) -> str:
    """The actions that an account with these members has, as a user, on a topic or group."""
    now = tables(imported(f"accounts: [{{{ACCOUNT}, {members}}}]"))
    actions = ("Pub", "Sub", "Get", "Update", "Create", "Delete")
    return " ".join(
        action for action in actions if now.may("rocketmq", HOST, Need(kind, name, frozenset({action})))
    )


@pytest.mark.proves("remoting:7.2")
def test_file_of_the_reference_is_translated() -> None:
    found = imported(REFERENCE)
    assert found.users == {
        "RocketMQ": UserInfo("RocketMQ", "12345678", "Normal", "enable"),
        "rocketmq2": UserInfo("rocketmq2", "0012345678", "Super", "enable"),
    }
    assert found.rows() == [
        ("RocketMQ", "Normal", "Custom", "Topic:topicA", ["All"], "Deny"),
        ("RocketMQ", "Normal", "Custom", "Topic:topicB", ["Get", "Pub", "Sub"], "Allow"),
        ("RocketMQ", "Normal", "Custom", "Topic:topicC", ["Get", "Sub"], "Allow"),
        ("RocketMQ", "Normal", "Custom", "Group:groupA", ["All"], "Deny"),
        ("RocketMQ", "Normal", "Custom", "Topic:RMQ_SYS_TRACE_TOPIC", ["Pub"], "Allow"),
        ("RocketMQ", "Normal", "Default", "Group:*", ["Get", "Sub"], "Allow"),
        ("rocketmq2", "Super", "Custom", "*", ["All"], "Allow"),
    ]
    assert found.remarks == [
        "globalWhiteRemoteAddresses 10.10.103.*: requests from there need a signature from now on",
        "globalWhiteRemoteAddresses 192.168.0.*: requests from there need a signature from now on",
        "rocketmq2: whiteRemoteAddress 192.168.1.*: its requests need a signature from now on",
    ]


def test_requests_are_signed_as_before() -> None:
    now = tables(imported(REFERENCE))
    command = Command(310, ext={"a": "p", "b": "topicB"})
    sign(command, Credentials("RocketMQ", "12345678"))
    rules = AccessRules(authorize=True)
    assert now.refusal(HOST, command, rules, lambda: [Need("Topic", "topicB", frozenset({"Pub"}))]) is None
    command.ext["b"] = "topicA"
    assert now.refusal(HOST, command, rules, list) == "check signature failed."


@pytest.mark.parametrize(
    ("members", "kind", "name", "actions"),
    [
        ("topicPerms: [T=PUB]", "Topic", "T", "Pub"),
        ("topicPerms: [T=SUB]", "Topic", "T", "Sub Get"),
        ("topicPerms: [T=SUB|PUB]", "Topic", "T", "Pub Sub Get"),
        ("topicPerms: [T=DENY]", "Topic", "T", ""),
        ("topicPerms: ['T=']", "Topic", "T", ""),
        ("topicPerms: [T=PUB, T=SUB]", "Topic", "T", "Sub Get"),
        ("topicPerms: [T=PUB]", "Topic", "U", ""),
        ("topicPerms: [T=PUB]", "Group", "T", ""),
        ("groupPerms: [g=SUB]", "Group", "g", "Sub Get"),
        ("groupPerms: [g=PUB]", "Group", "g", "Pub"),
        ("topicPerms: ['%RETRY%g=SUB']", "Group", "g", "Sub Get"),
        ("defaultTopicPerm: PUB|SUB", "Topic", "T", "Pub Sub Get"),
        ("defaultTopicPerm: PUB|SUB", "Group", "g", ""),
        ("defaultGroupPerm: SUB", "Group", "g", "Sub Get"),
        # What is named has its own permission only, not the default's.
        ("defaultTopicPerm: PUB|SUB, topicPerms: [T=PUB]", "Topic", "T", "Pub"),
        ("defaultTopicPerm: PUB|SUB, topicPerms: [T=SUB]", "Topic", "T", "Sub Get"),
        ("defaultTopicPerm: PUB|SUB, topicPerms: [T=DENY]", "Topic", "T", ""),
        ("defaultTopicPerm: PUB|SUB, topicPerms: [T=DENY]", "Topic", "U", "Pub Sub Get"),
        ("defaultTopicPerm: SUB, topicPerms: [T=PUB]", "Topic", "T", "Pub"),
        ("defaultGroupPerm: SUB, groupPerms: [g=DENY]", "Group", "g", ""),
        # Everybody may send traces.
        ("defaultTopicPerm: DENY", "Topic", "RMQ_SYS_TRACE_TOPIC", "Pub"),
        ("defaultTopicPerm: SUB", "Topic", "RMQ_SYS_TRACE_TOPIC", "Pub Sub Get"),
        ("topicPerms: [RMQ_SYS_TRACE_TOPIC=DENY]", "Topic", "RMQ_SYS_TRACE_TOPIC", "Pub"),
        # A star was an ordinary character.
        ("topicPerms: [T*=PUB]", "Topic", "Tea", ""),
        ("admin: true", "Topic", "T", "Pub Sub Get Update Create Delete"),
        ("admin: 'True', defaultTopicPerm: DENY", "Cluster", "c", "Pub Sub Get Update Create Delete"),
        ("admin: true, topicPerms: [T=PUB]", "Topic", "T", "Pub"),
        ("admin: true, topicPerms: [T=PUB]", "Cluster", "c", ""),
        ("admin: true, topicPerms: ['log*=SUB']", "Topic", "T", ""),
        ("admin: true, topicPerms: ['log*=SUB']", "Cluster", "c", ""),
    ],
)
def test_user_may_do_what_the_account_was_given(members: str, kind: str, name: str, actions: str) -> None:
    assert allowed(members, kind, name) == actions


@pytest.mark.parametrize(
    ("members", "remark"),
    [
        ("topicPerms: [T*=PUB]", "rocketmq: topicPerms T*=PUB: left out; it matched no name"),
        ("groupPerms: ['*=SUB']", "rocketmq: groupPerms *=SUB: left out"),
        ("whiteRemoteAddress: '*'", "rocketmq: whiteRemoteAddress *: its requests need a signature"),
        ("admin: true, groupPerms: [g=SUB]", "rocketmq: admin with permissions of its own: becomes a normal"),
    ],
)
def test_what_does_not_translate_is_said(members: str, remark: str) -> None:
    (said,) = imported(f"accounts: [{{{ACCOUNT}, {members}}}]").remarks
    assert said.startswith(remark)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [", "plain_acl.yml: line 1: not YAML"),
        ("accounts: [{accessKey: rocketmq, secretKey: hidden", "not YAML"),
        ("\x00", "not YAML"),
        ("? [a]\n: b", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("- 1", "write a mapping with globalWhiteRemoteAddresses and accounts"),
        ("text", "write a mapping"),
        ("accounts: 5", "accounts must be a list"),
        ("accounts: {a: b}", "accounts must be a list"),
        ("globalWhiteRemoteAddresses: 10.0.0.1", "globalWhiteRemoteAddresses must be a list"),
        ("acounts: []", "unknown members: acounts"),
        ("accounts: [5]", "an account is a mapping"),
        ("accounts: [{secretKey: hidden}]", "an account has no accessKey"),
        ("accounts: [{accessKey: '', secretKey: hidden}]", "an account has no accessKey"),
        ("accounts: [{accessKey: [a], secretKey: hidden}]", "accessKey must be a string"),
        ("accounts: [{accessKey: a}]", "the account 'a': secretKey is missing"),
        ("accounts: [{accessKey: a, secretKey: ' '}]", "the account 'a': secretKey is missing"),
        ("accounts: [{accessKey: a, secretKey: {b: hidden}}]", "'a': secretKey must be a string"),
        ("accounts: [{accessKey: a, secretKey: hidden, perms: []}]", "'a': unknown members: perms"),
        ("accounts: [{accessKey: a, secretKey: hidden, admin: yes}]", "admin is 'yes'; write true or false"),
        ("accounts: [{accessKey: a, secretKey: hidden, topicPerms: T=PUB}]", "topicPerms must be a list"),
        ("accounts: [{accessKey: a, secretKey: hidden, topicPerms: [T]}]", "topicPerms: 'T' is not a perm"),
        ("accounts: [{accessKey: a, secretKey: hidden, topicPerms: [=PUB]}]", "'=PUB' is not a permission"),
        ("accounts: [{accessKey: a, secretKey: hidden, groupPerms: [[g]]}]", "is not a permission"),
        ("accounts: [{accessKey: a, secretKey: hidden, groupPerms: [g=ALL]}]", "'ALL' is not a permission"),
        ("accounts: [{accessKey: a, secretKey: hidden, defaultTopicPerm: ANY}]", "'ANY' is not a permission"),
        ("accounts:\n- &a {accessKey: a, secretKey: hidden}\n- *a\n", "account 'a' is defined twice"),
    ],
)
def test_invalid_file_is_refused_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        imported(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("plain_acl.yml: ")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "accounts:\n", "{}", "dataVersion: [{counter: 1}]"])
def test_file_without_accounts_adds_nothing(text: str) -> None:
    assert imported(text) == Imported({}, {}, [])


def test_files_are_read_together() -> None:
    one, two = (f"accounts: [{{accessKey: {name}, secretKey: abcdefgh}}]".encode() for name in "ab")
    assert list(import_accounts({"plain_acl.yml": one, "acl/b.yml": two}).users) == ["a", "b"]
    with pytest.raises(SettingsError, check=about(what="account", value="a")):
        import_accounts({"plain_acl.yml": one, "acl/b.yml": one})


def test_users_that_exist_stay_as_they_are() -> None:
    found = imported(REFERENCE).without({"RocketMQ"})
    assert list(found.users) == ["rocketmq2"] and found.acls == {}
    assert found.remarks[-1] == "RocketMQ: a user of this name exists and stays as it is"


def test_added_users_are_on_disk(tmp_path: Path) -> None:
    found = imported(REFERENCE)
    AuthStore(tmp_path).add(found.users, found.acls)
    again = AuthStore(tmp_path)
    assert again.tables.users == found.users and again.acls == found.acls
    assert again.tables.policies == tables(found).policies
