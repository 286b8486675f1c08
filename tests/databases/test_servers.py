"""What tests do where a database server cannot be had."""

from __future__ import annotations

import pytest
from tests.databases import servers


def test_a_server_that_cannot_be_had_fails_the_test_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(servers, "FOLDERS", ("/nowhere",))
    for start in (servers.postgresql, servers.mariadb):
        text = r"is not on this machine.*apt-get install postgresql mariadb-server"
        with pytest.raises(pytest.fail.Exception, match=text), start():
            pass
