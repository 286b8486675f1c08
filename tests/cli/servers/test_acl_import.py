"""`sparrow acl import`: accounts of 4.x become users of a broker that does not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Sparrow

from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.testing import LocalCluster

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: administrator, secretKey: 12345678, admin: true}
- {accessKey: producer, secretKey: abcdefgh, topicPerms: [Orders=PUB]}
"""


@pytest.fixture
def offline() -> Sparrow:
    return Sparrow("")


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    return path


@pytest.mark.proves("remoting:7.2", "remoting:7.3")
def test_users_are_added_and_told(offline: Sparrow, tmp_path: Path, accounts: Path) -> None:
    said = offline("acl", "import", str(accounts), "--data", str(tmp_path), "--json").values
    directory = tmp_path / "store" / "config" / "auth"
    one = {"user": "administrator", "kind": "Super", "policy": "Custom", "resource": "*"}
    assert said[0] == {**one, "actions": ["All"], "decision": "Allow"}
    assert {(row["resource"], *row["actions"]) for row in said[1:3]} == {
        ("Topic:Orders", "Pub"),
        ("Topic:RMQ_SYS_TRACE_TOPIC", "Pub"),
    }
    assert "10.10.103.*" in said[3]["remark"]
    assert said[4:] == [{"users": 2, "directory": str(directory), "dryRun": False}]
    assert sorted(AuthStore(directory).tables.users) == ["administrator", "producer"]
    assert (directory / "users.json").stat().st_mode & 0o077 == 0
    again = offline("acl", "import", str(accounts), "--data", str(tmp_path)).lines
    assert again[-2:] == [
        "producer: a user of this name exists and stays as it is",
        f"0 users added in {directory}",
    ]


def test_dry_run_writes_nothing(offline: Sparrow, tmp_path: Path, accounts: Path) -> None:
    said = offline("acl", "import", str(accounts), "--data", str(tmp_path / "new"), "--dry-run")
    assert said.lines[-1].startswith("2 users would be added in ")
    assert not (tmp_path / "new").exists()


def test_settings_of_the_accounts_may_still_be_there(
    offline: Sparrow, tmp_path: Path, accounts: Path
) -> None:
    config = tmp_path / "broker.conf"
    auth = tmp_path / "auth"
    config.write_text(f"aclEnable=true\naclPath={tmp_path}\nauthConfigPath={auth}\n")
    offline("acl", "import", str(accounts), "-c", str(config), "--data", str(tmp_path))
    assert sorted(AuthStore(auth).tables.users) == ["administrator", "producer"]


def test_broken_file_adds_nothing(offline: Sparrow, tmp_path: Path, accounts: Path) -> None:
    bad = tmp_path / "bad.yml"
    bad.write_text("accounts: [{accessKey: someone, secretKey: [hidden]}]")
    said = offline("acl", "import", str(accounts), str(bad), "--data", str(tmp_path / "new"), status=1)
    assert f"{bad}: the account 'someone': secretKey must be a string" in said.err
    missing = offline("acl", "import", str(tmp_path / "no.yml"), status=1)
    assert "no.yml cannot be read: No such file or directory" in missing.err
    assert not (tmp_path / "new").exists()


def test_clients_sign_as_before(
    offline: Sparrow, tmp_path: Path, accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"authConfigPath={tmp_path / 'auth'}"
    offline("acl", "import", str(accounts), "--set", place, "--data", str(tmp_path / "data"))
    with LocalCluster(
        tmp_path / "running",
        authentication_enabled=True,
        authorization_enabled=True,
        auth_config_path=tmp_path / "auth",
    ) as cluster:
        sparrow = Sparrow(cluster.namesrv)
        monkeypatch.setenv("SPARROW_ACCESS_KEY", "administrator")
        monkeypatch.setenv("SPARROW_SECRET_KEY", "12345678")
        sparrow("topic", "create", "Orders")
        sparrow("topic", "create", "Bills")
        monkeypatch.setenv("SPARROW_ACCESS_KEY", "producer")
        monkeypatch.setenv("SPARROW_SECRET_KEY", "abcdefgh")
        sparrow("send", "Orders", "paid")
        assert "has no permission to access Topic:Bills" in sparrow("send", "Bills", "paid", status=1).err


def test_running_broker_is_not_changed(offline: Sparrow, tmp_path: Path, accounts: Path) -> None:
    with LocalCluster(tmp_path / "running") as cluster:
        place = f"storePathRootDir={cluster.data}"
        said = offline("acl", "import", str(accounts), "--set", place, status=1)
        assert "is in use by" in said.err and "stop that broker" in said.err


@pytest.mark.parametrize("name", ["aclEnable=true", "aclPath=conf", "whiteAddressesAreAdmin=true"])
def test_broker_with_accounts_does_not_start(offline: Sparrow, tmp_path: Path, name: str) -> None:
    said = offline("broker", "--set", name, "--data", str(tmp_path / "new"), status=1)
    assert "type: sparrow acl import plain_acl.yml" in said.err
    assert not (tmp_path / "new").exists()
