"""`plain_acl.yml` and the other account files: read, watched, changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.doubles import FakeClock

from sparrowmq.broker.access.acl_files import AclFiles
from sparrowmq.broker.access.plain_acl import Perm
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.frame import Command

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
"""The file that comes with the reference, but for one secret that YAML would read as a number."""


def files(tmp_path: Path, text: str = REFERENCE) -> AclFiles:
    (tmp_path / "plain_acl.yml").write_text(text)
    return AclFiles(tmp_path, FakeClock())


def touch(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10_000_000))


@pytest.mark.proves("remoting:7.2")
def test_file_of_the_reference_is_read(tmp_path: Path) -> None:
    acl = files(tmp_path).acl
    assert sorted(acl.accounts) == ["RocketMQ", "rocketmq2"]
    first, second = acl.accounts["RocketMQ"], acl.accounts["rocketmq2"]
    assert first.resources == {
        "topicA": Perm.DENY,
        "topicB": Perm.PUB | Perm.SUB,
        "topicC": Perm.SUB,
        "%RETRY%groupA": Perm.DENY,
    }
    assert (first.admin, first.default_topic, first.default_group) == (False, Perm.DENY, Perm.SUB)
    assert (second.admin, second.secret_key) == (True, "0012345678")
    assert acl.refusal("192.168.0.77", Command(17)) is None


def test_other_files_of_the_directory_are_read(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "team.yml").write_text("accounts:\n- {accessKey: teamteam, secretKey: abcdefgh}\n")
    (tmp_path / "acl" / "notes.txt").write_text("no account")
    assert "teamteam" in files(tmp_path).acl.accounts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [", "plain_acl.yml, line"),
        ("- 1", "must be a mapping"),
        ("accounts: 5", "accounts must be a list"),
        ("acounts: []", "unknown members: acounts"),
        ("globalWhiteRemoteAddresses: [nowhere]", "plain_acl.yml: 'nowhere' is not an address pattern"),
        ("accounts: [{accessKey: a, secretKey: b}]", "need 7 characters"),
        ("accounts:\n- &a {accessKey: rocketmq, secretKey: abcdefgh}\n- *a\n", "is defined twice"),
        ("\x00", "is not YAML"),
    ],
)
def test_invalid_file_prevents_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        files(tmp_path, text)


def test_missing_file_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no .*plain_acl\.yml; create it with"):
        AclFiles(tmp_path, FakeClock())


def test_empty_file_denies_everybody(tmp_path: Path) -> None:
    assert files(tmp_path, "").acl.refusal("127.0.0.1", Command(10)) == "No accessKey is configured"


class TestReload:
    @pytest.mark.proves("remoting:7.2")
    def test_changed_files_are_reloaded(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        before = acl.acl
        acl.refresh()
        assert acl.acl is before
        (tmp_path / "plain_acl.yml").write_text("accounts: [{accessKey: newcomer, secretKey: abcdefgh}]")
        touch(tmp_path / "plain_acl.yml")
        acl.refresh()
        assert list(acl.acl.accounts) == ["newcomer"]

    def test_added_and_deleted_files_are_noticed(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        (tmp_path / "acl").mkdir()
        extra = tmp_path / "acl" / "x.yaml"
        extra.write_text("accounts: [{accessKey: newcomer, secretKey: abcdefgh}]")
        acl.refresh()
        assert "newcomer" in acl.acl.accounts
        extra.unlink()
        acl.refresh()
        assert "newcomer" not in acl.acl.accounts

    def test_broken_file_changes_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        acl = files(tmp_path)
        (tmp_path / "plain_acl.yml").write_text("accounts: [{accessKey: rocketmq, secretKey: hidden")
        touch(tmp_path / "plain_acl.yml")
        acl.refresh()
        assert sorted(acl.acl.accounts) == ["RocketMQ", "rocketmq2"]
        assert "the previous ones stay" in caplog.text
        assert "hidden" not in caplog.text


class TestChanges:
    def test_account_is_changed_in_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "acl").mkdir()
        team = tmp_path / "acl" / "team.yml"
        team.write_text("accounts:\n- {accessKey: teamteam, secretKey: abcdefgh, admin: true}\n")
        acl = files(tmp_path)
        acl.put_account({"accessKey": "teamteam", "secretKey": "00005678"})
        again = AclFiles(tmp_path, FakeClock())
        for each in (acl, again):
            account = each.acl.accounts["teamteam"]
            assert (account.secret_key, account.admin) == ("00005678", True)
        assert team.stat().st_mode & 0o777 == 0o600
        assert "00005678" not in (tmp_path / "plain_acl.yml").read_text()

    def test_new_accounts_go_to_the_main_file(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        acl.put_account({"accessKey": "newcomer", "secretKey": "abcdefgh", "topicPerms": ["T=PUB"]})
        assert AclFiles(tmp_path, FakeClock()).acl.accounts["newcomer"].resources == {"T": Perm.PUB}
        assert len(acl.acl.accounts) == 3
        assert acl.acl.refusal("192.168.0.7", Command(1)) is None  # the white list is still there

    @pytest.mark.parametrize("changes", [{"secretKey": "short"}, {"defaultTopicPerm": "ALL"}])
    def test_invalid_change_changes_nothing(self, tmp_path: Path, changes: dict[str, str]) -> None:
        acl = files(tmp_path)
        before = (tmp_path / "plain_acl.yml").read_text()
        for key in ("RocketMQ", "newcomer"):
            with pytest.raises(SettingsError):
                acl.put_account({"accessKey": key, **changes})
        assert (tmp_path / "plain_acl.yml").read_text() == before
        assert acl.acl.accounts["RocketMQ"].secret_key == "12345678"

    @pytest.mark.parametrize("broken", ["accounts: [just a text]\n", "accounts: [{accessKey: a}]\n"])
    def test_file_that_just_became_invalid_is_not_overwritten(self, tmp_path: Path, broken: str) -> None:
        acl = files(tmp_path)
        (tmp_path / "plain_acl.yml").write_text(broken)
        for change in (
            lambda: acl.put_account({"accessKey": "newcomer", "secretKey": "abcdefgh"}),
            lambda: acl.delete_account("rocketmq2"),
            lambda: acl.put_white(["*"]),
        ):
            with pytest.raises(SettingsError, match=r"plain_acl\.yml: "):
                change()
        assert (tmp_path / "plain_acl.yml").read_text() == broken
        assert "rocketmq2" in acl.acl.accounts

    def test_account_is_deleted(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        acl.delete_account("rocketmq2")
        assert list(AclFiles(tmp_path, FakeClock()).acl.accounts) == ["RocketMQ"]
        with pytest.raises(SettingsError, match="there is no account 'rocketmq2'"):
            acl.delete_account("rocketmq2")

    def test_white_list_is_changed(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        acl.put_white(["1.2.3.4"])
        again = AclFiles(tmp_path, FakeClock())
        assert again.acl.refusal("1.2.3.4", Command(1)) is None
        assert again.acl.refusal("192.168.0.7", Command(1)) is not None
        with pytest.raises(SettingsError):
            acl.put_white(["nonsense"])

    def test_versions_count_changes(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        path = str(tmp_path / "plain_acl.yml")
        assert acl.versions()[path].counter == 0
        acl.put_white([])
        acl.put_white(["*"])
        assert acl.versions()[path].counter == 2
        assert AclFiles(tmp_path, FakeClock()).versions()[path].counter == 2

    def test_read_only_directory_is_an_error(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        (tmp_path / "plain_acl.yml.tmp").mkdir()
        with pytest.raises(SettingsError, match="cannot be written"):
            acl.put_white([])


def test_many_accounts_and_addresses_survive_writing_and_reading(tmp_path: Path) -> None:
    """The file is written in pieces."""
    acl = files(tmp_path)
    acl.put_white([f"10.0.{number // 200}.{number % 200}" for number in range(950)])
    for name in ("account: 1", "yes", "0012345", "-dash--", "a'b\"c#d"):
        acl.put_account(
            {"accessKey": f"{name}: long", "secretKey": "00123456", "topicPerms": ["T=PUB", "U=PUB|SUB"]}
        )
    again = AclFiles(tmp_path, FakeClock())
    assert again._documents == acl._documents
    assert again.acl.accounts.keys() == acl.acl.accounts.keys()
    assert len(again._documents[again.main]["globalWhiteRemoteAddresses"]) == 950


def test_no_change_creates_a_file_that_the_next_start_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.broker.access.acl_files.FILE_BYTES_MAX", 2000)
    acl = files(tmp_path)
    before = acl.main.read_bytes()
    with pytest.raises(SettingsError, match="the limit is 2000"):
        acl.put_white([f"10.0.0.{number}" for number in range(255)])
    assert acl.main.read_bytes() == before
    assert acl.versions() == AclFiles(tmp_path, FakeClock()).versions()


def test_change_includes_edits_made_to_the_file_meanwhile(tmp_path: Path) -> None:
    acl = files(tmp_path)
    text = REFERENCE + "- {accessKey: byhand01, secretKey: '12345678'}\n"
    acl.main.write_text(text)
    touch(acl.main)
    assert acl.are_stale
    acl.put_white(["10.0.0.1"])
    assert "byhand01" in acl.acl.accounts and not acl.are_stale
