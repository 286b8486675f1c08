"""`sparrow kv …` against a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow


def test_values_are_kept_listed_and_deleted(sparrow: Sparrow) -> None:
    assert "have no value for 'k' in name space 'tools'" in sparrow("kv", "get", "tools", "k", status=1).err
    assert sparrow("kv", "put", "tools", "k", "größer").out == "k = größer\n"
    assert sparrow("kv", "put", "tools", "j", "1", "--json").values == [{"j": "1"}]
    assert sparrow("kv", "get", "tools", "k").out == "größer\n"
    assert sparrow("kv", "get", "tools", "k", "--json").values == ["größer"]
    assert sparrow("kv", "list", "tools", "--json").values == [{"j": "1", "k": "größer"}]
    assert ["j", "1"] in [line.split() for line in sparrow("kv", "list", "tools").lines]
    assert sparrow("kv", "delete", "tools", "k").out == "k deleted\n"
    assert sparrow("kv", "delete", "tools", "j", "--json").values == [{"deleted": "j"}]
    assert sparrow("kv", "list", "tools", "--json").values == [{}]
