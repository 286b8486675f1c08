"""Settings that can be switched while the name server runs."""

from __future__ import annotations

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.nameserver.options import Options, names_in


def test_update_changes_known_options_and_returns_other_names() -> None:
    options = Options()
    text = (
        "# a comment\n\norderMessageEnable = TRUE\nclusterTest=false\nreturnOrderTopicConfigToBroker=false\n"
    )
    assert options.update(text) == ["clusterTest"]
    assert options == Options(order_message_enable=True, return_order_topic_config_to_broker=False)


@pytest.mark.parametrize("line", ["orderMessageEnable=maybe", "orderMessageEnable"])
def test_invalid_line_changes_nothing(line: str) -> None:
    options = Options()
    with pytest.raises(SettingsError, match="orderMessageEnable"):
        options.update(f"returnOrderTopicConfigToBroker=false\n{line}")
    assert options == Options()


def test_options_are_written_as_sorted_properties() -> None:
    assert Options().properties({"listenPort": 9876, "kvConfigPath": ""}) == (
        "kvConfigPath=\nlistenPort=9876\norderMessageEnable=false\nreturnOrderTopicConfigToBroker=true\n"
    )
    assert names_in("a=1\n b = 2\n") == {"a", "b"}
