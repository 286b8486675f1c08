"""5.x access control: users, policies, the permissions that requests need."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.recorded import command as command_of
from tests.protocol.recorded import exchanges
from tests.support import about

from sparrowmq.broker.access.auth_needs import Need
from sparrowmq.broker.access.policies import (
    USER_TYPES,
    AccessRules,
    AuthTables,
    merge,
    one_of,
    parse_codes,
    parse_entry,
    parse_policies,
    parse_resource,
    without,
)
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign, signature

HOST = "10.1.1.1"
RULES = AccessRules(authorize=True)


def entry(resource: str, actions: str = "Pub", decision: str = "Allow", *ips: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, actions.split(","), list(ips) or None, decision)


def acl(*entries: PolicyEntryInfo, kind: str | None = None) -> AclInfo:
    return AclInfo("User:alice", [PolicyInfo(kind, list(entries))])


def tables(*entries: PolicyEntryInfo, **user: Any) -> AuthTables:
    info = {"username": "alice", "password": "secret12", "user_type": "Normal", "user_status": "enable"}
    found = AuthTables({"alice": UserInfo(**{**info, **user})})
    if entries:
        found.policies["User:alice"] = parse_policies(acl(*entries))
    return found


def signed(code: int = 310, ext: dict[str, str] | None = None, *, secret: str = "secret12") -> Command:
    command = Command(code, ext=ext or {})
    sign(command, Credentials("alice", secret))
    return command


def need(resource: str, *actions: str) -> Need:
    kind, _, name = resource.partition(":")
    return Need(kind, name, frozenset(actions or ["Pub"]))


class TestWho:
    @pytest.mark.proves("remoting:7.3")
    def test_constants_have_the_references_names(self) -> None:
        known = tables()
        unauthorized = AccessRules(authorize=False)
        for command, said in (
            (Command(310), "username cannot be null."),
            (Command(310, ext={"AccessKey": "bob"}), "User:bob is not found."),
            (signed(secret="wrong"), "check signature failed."),
            (signed(), None),
        ):
            assert known.refusal(HOST, command, unauthorized, lambda: ()) == said
        off = tables(user_status="disable")
        assert off.refusal(HOST, signed(), unauthorized, lambda: ()) == "User:alice is disabled."

    @pytest.mark.parametrize("password", [None, ""])
    def test_no_signature_is_valid_without_a_password(self, password: str | None) -> None:
        command = Command(310)
        command.ext = {"AccessKey": "alice"}
        command.ext["Signature"] = signature(command.ext, b"", "")
        assert (
            tables(password=password).refusal(HOST, command, RULES, lambda: ()) == "check signature failed."
        )

    @pytest.mark.proves("remoting:7.3")
    def test_recorded_refusals_are_repeated(self) -> None:
        """Requests that the reference refused with code 16 during authentication are refused here with the
        same texts."""
        seen = set()
        known = AuthTables({"admin": UserInfo("admin", "12345678", "Super", "enable")})
        for item in exchanges():
            if item.response is None or command_of(item.response).code != 16:
                continue
            remark = command_of(item.response).remark
            if remark in ("username cannot be null.", "check signature failed."):
                assert known.refusal(HOST, command_of(item.request), RULES, lambda: ()) == remark
                seen.add(remark)
        assert len(seen) == 2

    def test_request_is_parsed_only_after_authentication(self) -> None:
        def read() -> list[Need]:
            raise AssertionError("the body was read")

        known = tables()
        for command in (Command(310), Command(310, ext={"AccessKey": "bob"}), signed(secret="wrong")):
            assert known.refusal(HOST, command, RULES, read) is not None
        with pytest.raises(AssertionError, match="the body was read"):
            known.refusal(HOST, signed(), RULES, read)

    def test_codes_on_the_white_list_pass(self) -> None:
        known = tables()
        wanted = [need("Topic:T")]
        assert known.refusal(HOST, Command(28), AccessRules(False, frozenset({28})), lambda: ()) is None
        assert (
            known.refusal(HOST, signed(28), AccessRules(True, unauthorized=frozenset({28})), lambda: wanted)
            is None
        )
        assert (
            known.refusal(HOST, Command(28), AccessRules(True, frozenset({28})), lambda: wanted)
            == "User: not found."
        )
        root = AuthTables({"root": UserInfo("root", "x", "Super", "enable")})
        claimed = Command(28, ext={"AccessKey": "root"})
        both = AccessRules(True, frozenset({28}), frozenset({28}))
        assert (
            root.refusal(HOST, claimed, AccessRules(True, frozenset({28})), lambda: wanted)
            == "check signature failed."
        )
        assert root.refusal(HOST, claimed, both, lambda: wanted) is None
        assert parse_codes(" 28, 34,", "x") == {28, 34}
        for wrong in ("a", "28,-1", "9" * 5000):
            with pytest.raises(SettingsError, check=about(setting="authenticationWhitelist", value=wrong)):
                parse_codes(wrong, "authenticationWhitelist")


class TestDecisions:
    def refusal(self, wanted: Need, *entries: PolicyEntryInfo, host: str = HOST, **user: Any) -> str | None:
        return tables(*entries, **user).refusal(host, signed(), RULES, lambda: [wanted])

    @pytest.mark.proves("remoting:7.3")
    def test_super_users_pass(self) -> None:
        said = "User:alice has no permission to access Topic:T from 10.1.1.1, "
        assert self.refusal(need("Topic:T")) == said + "no matched policies."
        assert self.refusal(need("Topic:T"), entry("Topic:U")) == said + "no matched policies."
        denied = self.refusal(need("Topic:T"), entry("Topic:T", decision="Deny"))
        assert denied == said + "the decision is deny."
        assert self.refusal(need("Topic:T"), user_type="Super") is None

    @pytest.mark.proves("remoting:7.3")
    @pytest.mark.parametrize(
        ("resource", "wanted", "matches"),
        [
            ("*", "Topic:T", True),
            ("Topic:*", "Topic:T", True),
            ("Topic:*", "Group:T", False),
            ("Topic:Order*", "Topic:Orders", True),
            ("Topic:Order*", "Topic:Order", True),
            ("Topic:Order*", "Topic:Ord", False),
            ("Group:g", "Group:g", True),
            ("group:g", "Group:g", True),
            ("Cluster:c", "Cluster:c", True),
            ("Topic:T", "Topic:t", False),
        ],
    )
    def test_patterns_match_resources(self, resource: str, wanted: str, matches: bool) -> None:
        assert (self.refusal(need(wanted), entry(resource)) is None) is matches

    @pytest.mark.proves("remoting:7.3")
    @pytest.mark.parametrize(
        ("granted", "wanted", "allowed"),
        [
            ("Pub", ("Pub",), True),
            ("Sub", ("Pub",), False),
            ("All", ("Pub",), True),
            ("Sub", ("Sub", "Get"), True),
            ("Get", ("Sub", "Get"), True),
            ("Create,Update", ("Update",), True),
            ("pub", ("Pub",), True),
        ],
    )
    def test_actions_are_checked(self, granted: str, wanted: tuple[str, ...], allowed: bool) -> None:
        assert (self.refusal(need("Topic:T", *wanted), entry("Topic:T", granted)) is None) is allowed

    @pytest.mark.proves("remoting:7.3")
    @pytest.mark.parametrize(
        ("source", "inside"),
        [("10.1.1.1", True), ("10.1.0.0/16", True), ("10.1.1.2", False), ("fe80::/64", False)],
    )
    def test_source_addresses_are_checked(self, source: str, inside: bool) -> None:
        assert (self.refusal(need("Topic:T"), entry("Topic:T", "Pub", "Allow", source)) is None) is inside

    def test_unknown_source_matches_no_address(self) -> None:
        limited = entry("Topic:T", "Pub", "Allow", "10.0.0.0/8")
        assert self.refusal(need("Topic:T"), limited, host="?") is not None

    @pytest.mark.proves("remoting:7.3")
    @pytest.mark.parametrize(
        ("entries", "allowed"),
        [
            ([entry("Topic:*"), entry("Topic:T", decision="Deny")], False),
            ([entry("Topic:*", decision="Deny"), entry("Topic:T")], True),
            ([entry("Topic:Te*"), entry("Topic:T*", decision="Deny")], True),
            ([entry("*", decision="Deny"), entry("Topic:*")], True),
            ([entry("Topic:T"), entry("Topic:T", decision="Deny")], False),
            ([entry("Topic:T", decision="Deny", actions="Sub"), entry("Topic:T")], True),
        ],
    )
    def test_most_specific_policy_decides_and_deny_wins(
        self, entries: list[PolicyEntryInfo], allowed: bool
    ) -> None:
        wanted = need("Topic:Test") if "Te" in str(entries[0].resource) else need("Topic:T")
        for order in (entries, entries[::-1]):
            assert (self.refusal(wanted, *order) is None) is allowed

    def test_default_policies_apply_when_no_custom_policy_matches(self) -> None:
        found = parse_policies(
            AclInfo(
                "User:alice",
                [
                    PolicyInfo("Custom", [entry("Topic:T", decision="Deny")]),
                    PolicyInfo("Default", [entry("*")]),
                ],
            )
        )
        assert found.refusal(need("Topic:T"), HOST) == "the decision is deny."
        assert found.refusal(need("Topic:U"), HOST) is None

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            (entry(""), "The resource is null."),
            (entry("Topic"), "The resource Topic is illegal."),
            (entry("Table:x"), "The resource Table:x is illegal."),
            (PolicyEntryInfo("Topic:T", [], None, "Allow"), "The actions is empty."),
            (entry("Topic:T", "Any"), "The actions can not be Any."),
            (entry("Topic:T", "Fly"), "The actions Fly are illegal."),
            (entry("Topic:T", "Pub", "Allow", " "), "The source ip is empty."),
            (entry("Topic:T", "Pub", "Allow", "10.0.0.0/33"), "The source ip is invalid."),
            (entry("Topic:T", "Pub", "Maybe"), "The decision is null or illegal."),
            (PolicyEntryInfo("Topic:T", ["Pub"]), "The decision is null or illegal."),
        ],
    )
    def test_invalid_entries_are_refused(self, wrong: PolicyEntryInfo, said: str) -> None:
        with pytest.raises(SettingsError) as error:
            parse_entry(wrong)
        assert str(error.value) == said

    def test_invalid_policies_are_refused(self) -> None:
        with pytest.raises(SettingsError, match="The policy entries is empty"):
            parse_policies(acl())
        with pytest.raises(SettingsError, match="The policy type Other is illegal"):
            parse_policies(acl(entry("*"), kind="Other"))

    def test_every_resource_type_is_accepted(self) -> None:
        assert parse_resource("*").kind is None
        assert parse_resource("cluster:c*").kind == "Cluster"


class TestChanges:
    def test_merging_replaces_entries_of_the_same_resource(self) -> None:
        old = acl(entry("Topic:A"), entry("Topic:B"))
        new = merge(old, acl(entry("Topic:B", decision="Deny"), entry("Topic:C")))
        (policy,) = new.policies
        assert policy.policy_type == "Custom"
        assert [(each.resource, each.decision) for each in policy.entries] == [
            ("Topic:A", "Allow"),
            ("Topic:B", "Deny"),
            ("Topic:C", "Allow"),
        ]
        assert merge(None, old).policies[0].entries == old.policies[0].entries

    def test_entries_are_removed(self) -> None:
        info = acl(entry("Topic:A"), entry("Topic:B"))
        left = without(info, None, "Topic:A")
        assert left is not None
        assert [each.resource for each in left.policies[0].entries] == ["Topic:B"]
        assert without(left, "custom", "Topic:B") is None
        assert without(info, "Default", "Topic:A") == merge(None, info)


@pytest.mark.parametrize("text", ["super", "SUPER", " Super ", "sUPER"])
def test_letter_case_is_ignored(text: str) -> None:
    assert one_of(text, USER_TYPES) == "Super"


@pytest.mark.parametrize("text", [None, "", "Superuser", "\u017fuper", "Su per", "Super\x00"])
def test_unknown_words_are_refused(text: str | None) -> None:
    """The long s (ſ) becomes an S in upper case: only ASCII letters have two cases here."""
    assert one_of(text, USER_TYPES) is None


def test_disabled_user_is_refused() -> None:
    for status in ("disable", "Disable", "unknown"):
        found = tables(entry("Topic:T"), user_status=status)
        assert found.refusal(HOST, signed(), RULES, lambda: ()) == "User:alice is disabled."
        assert not found.may("alice", HOST, need("Topic:T"))
    found = tables(entry("Topic:T"))
    assert found.may("alice", HOST, need("Topic:T"))
    assert not found.may("alice", HOST, need("Topic:U"))
    assert not found.may("bob", HOST, need("Topic:T"))
