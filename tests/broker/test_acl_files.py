"""`plain_acl.yml` and its fellows: read, watched, changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.doubles import FakeClock

from sparrowmq.broker.acl import Perm
from sparrowmq.broker.acl_files import AclFiles
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
def test_the_references_file(tmp_path: Path) -> None:
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


def test_more_accounts_in_the_directory(tmp_path: Path) -> None:
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
        ("globalWhiteRemoteAddresses: [nowhere]", "plain_acl.yml: 'nowhere' is no pattern"),
        ("accounts: [{accessKey: a, secretKey: b}]", "need 7 characters"),
        ("accounts:\n- &a {accessKey: rocketmq, secretKey: abcdefgh}\n- *a\n", "stands twice"),
        ("\x00", "is not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        files(tmp_path, text)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no .*plain_acl\.yml; write it with"):
        AclFiles(tmp_path, FakeClock())


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    assert files(tmp_path, "").acl.refusal("127.0.0.1", Command(10)) == "No accessKey is configured"


class TestReload:
    @pytest.mark.proves("remoting:7.2")
    def test_changes_are_taken(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        before = acl.acl
        acl.refresh()
        assert acl.acl is before
        (tmp_path / "plain_acl.yml").write_text("accounts: [{accessKey: newcomer, secretKey: abcdefgh}]")
        touch(tmp_path / "plain_acl.yml")
        acl.refresh()
        assert list(acl.acl.accounts) == ["newcomer"]

    def test_files_that_come_and_go(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        (tmp_path / "acl").mkdir()
        extra = tmp_path / "acl" / "x.yaml"
        extra.write_text("accounts: [{accessKey: newcomer, secretKey: abcdefgh}]")
        acl.refresh()
        assert "newcomer" in acl.acl.accounts
        extra.unlink()
        acl.refresh()
        assert "newcomer" not in acl.acl.accounts

    def test_a_broken_file_changes_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        acl = files(tmp_path)
        (tmp_path / "plain_acl.yml").write_text("accounts: [{accessKey: rocketmq, secretKey: hidden")
        touch(tmp_path / "plain_acl.yml")
        acl.refresh()
        assert sorted(acl.acl.accounts) == ["RocketMQ", "rocketmq2"]
        assert "the old stays" in caplog.text
        assert "hidden" not in caplog.text


class TestChanges:
    def test_an_account_is_changed_where_it_stands(self, tmp_path: Path) -> None:
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
    def test_a_wrong_change_changes_nothing(self, tmp_path: Path, changes: dict[str, str]) -> None:
        acl = files(tmp_path)
        before = (tmp_path / "plain_acl.yml").read_text()
        for key in ("RocketMQ", "newcomer"):
            with pytest.raises(SettingsError):
                acl.put_account({"accessKey": key, **changes})
        assert (tmp_path / "plain_acl.yml").read_text() == before
        assert acl.acl.accounts["RocketMQ"].secret_key == "12345678"

    @pytest.mark.parametrize("broken", ["accounts: [just a text]\n", "accounts: [{accessKey: a}]\n"])
    def test_a_file_that_was_just_broken_is_left_alone(self, tmp_path: Path, broken: str) -> None:
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

    def test_deleting(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        acl.delete_account("rocketmq2")
        assert list(AclFiles(tmp_path, FakeClock()).acl.accounts) == ["RocketMQ"]
        with pytest.raises(SettingsError, match="there is no account 'rocketmq2'"):
            acl.delete_account("rocketmq2")

    def test_the_white_list(self, tmp_path: Path) -> None:
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

    def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        acl = files(tmp_path)
        (tmp_path / "plain_acl.yml.tmp").mkdir()
        with pytest.raises(SettingsError, match="cannot be written"):
            acl.put_white([])
