"""Wrong types in the calls of `Admin`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about

import sparrowmq as mq
from sparrowmq.client.admin.arguments import checked


@pytest.mark.parametrize("wrong", [7, None, ["a"]])
@pytest.mark.parametrize(
    ("part", "call", "argument", "others"),
    [
        ("topics", "config", "broker", {"topic": "T"}),
        ("topics", "entries", "queue", {"offset": 0}),
        ("groups", "committed", "queue", {"group": "g"}),
        ("brokers", "info", "broker", {}),
        ("messages", "query", "key", {"topic": "T"}),
        ("users", "create", "password", {"name": "u"}),
        ("name_servers", "value", "key", {"namespace": "n"}),
        ("replicas", "state", "broker_address", {}),
    ],
)
def test_wrong_type_is_refused_by_name(
    part: str, call: str, argument: str, others: dict[str, Any], wrong: object
) -> None:
    admin = mq.Admin("127.0.0.1:1")
    with pytest.raises(ValueError) as refused:
        getattr(getattr(admin, part), call)(**others, **{argument: wrong})
    assert str(refused.value).startswith((f"the {argument} must be text, not ", f"{argument} is of type "))


def test_only_simple_types_are_checked() -> None:
    def call(
        name: str, seconds: float = 1.0, to: dict[str, int] | None = None, cluster: str | None = None
    ) -> str:
        return f"{name} {seconds} {to} {cluster}"

    check = checked(call)
    assert check("a", 2, cluster=None) == "a 2 None None"
    assert check("a", to=5) == "a 1.0 5 None"
    with pytest.raises(mq.SettingsError, check=about(setting="seconds", value="2")):
        check("a", "2")
    with pytest.raises(mq.InvalidNameError, check=about(what="cluster")):
        check("a", cluster=1)
    with pytest.raises(TypeError) as missing:
        check()
    assert "call() missing 1 required positional argument: 'name'" in str(missing.value)
