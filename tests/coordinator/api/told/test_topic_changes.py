"""What a change of a topic asks of the brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.coordinator.api.furnished import furnished

from sparrowmq.coordinator.api.shared import PREFIX


@pytest.mark.parametrize(
    ("topic", "body", "queues", "perm"),
    [
        ("T", {"perm": 4}, None, 4),
        ("T", {"queues": 3}, 3, None),
        ("New", {}, 8, 6),
        ("New", {"perm": 4}, 8, 4),
    ],
)
def test_only_what_is_given_changes(
    migrated: Path, tmp_path: Path, topic: str, body: dict[str, Any], queues: int | None, perm: int | None
) -> None:
    with furnished(migrated, tmp_path) as house:
        house.restore()
        body = {**body, "reason": "agreed"}
        asked = house.ask("PUT", f"{PREFIX}/cluster/topics/{topic}", body, token=house.tokens["admin"])
        assert (asked.status, asked.answer["queues"], asked.answer["perm"]) == (200, queues, perm)
        numbers = {"read_queues": queues, "write_queues": queues} if topic == "T" else {"queues": queues}
        assert house.admin.done[-1] == f"create {topic} { ({**numbers, 'perm': perm, 'cluster': None}) }"
