from __future__ import annotations

import logging

import pytest

from sparrowmq.core.errors import BrokerError, ConnectError, NoRoomError, NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster import faults
from sparrowmq.spark.cluster.faults import DataLossError, Occasionally, is_passing, messages_lost
from sparrowmq.spark.options.table import ReadOptions

QUEUE = MessageQueue("t", "b", 0)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ConnectError("x"), True),
        (NoRouteError("x"), True),
        (NoRoomError("x"), True),
        (BrokerError(2, "busy"), True),
        (BrokerError(16, "no permission"), False),
        (SettingsError("x"), False),
        (ValueError("x"), False),
    ],
)
def test_which_faults_pass(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing


def test_a_loss_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLossError, match="queue t/b/0: offsets 3 to 4 cannot be read, gone"):
        messages_lost(ReadOptions(), QUEUE, 3, 5, "gone")
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        messages_lost(ReadOptions(fail_on_data_loss=False), QUEUE, 3, 5, "gone")
    assert "offsets 3 to 4 cannot be read, gone; continuing without them" in caplog.text


def test_a_lasting_fault_is_told_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 50.0
    monkeypatch.setattr(faults, "monotonic", lambda: now)
    complaints = Occasionally(seconds=10)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(21):
            complaints.warn("no answer from %s", "broker-a")
            now += 1
    assert caplog.text.count("no answer from broker-a") == 3
