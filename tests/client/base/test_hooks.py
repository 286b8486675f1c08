from __future__ import annotations

import logging

import pytest
from tests.support import about

from sparrowmq.client.base.hooks import (
    CheckForbiddenContext,
    CheckForbiddenHook,
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterMessageContext,
    FilterMessageHook,
    Hook,
    Hooks,
    RpcHook,
    SendContext,
    SendHook,
    SendMode,
)
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.errors import ClientError, SettingsError
from sparrowmq.core.message import Message, MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
MESSAGE = Message("T", b"x")


class Everything(SendHook, EndTransactionHook, ConsumeHook, FilterMessageHook):
    """Records every call under a name."""

    def __init__(self, name: str, calls: list[str], fails: bool = False) -> None:
        self.name, self.calls, self.fails = name, calls, fails

    def note(self, what: str) -> None:
        self.calls.append(f"{self.name} {what}")
        if self.fails:
            raise ValueError("a broken hook")

    def before_send(self, context: SendContext) -> None:
        self.note("before_send")

    def after_send(self, context: SendContext) -> None:
        self.note("after_send")

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.note("end_transaction")

    def before_consume(self, context: ConsumeContext) -> None:
        self.note("before_consume")

    def after_consume(self, context: ConsumeContext) -> None:
        self.note("after_consume")

    def filter_messages(self, context: FilterMessageContext) -> None:
        self.note("filter_messages")
        context.messages.pop()


def send_context() -> SendContext:
    return SendContext(
        group="g",
        mode=SendMode.SYNC,
        messages=(MESSAGE,),
        message_id="id",
        queue=QUEUE,
        address="b:1",
        client_address="c",
    )


def check_context() -> CheckForbiddenContext:
    return CheckForbiddenContext(
        namesrv="n:1", group="g", mode=SendMode.SYNC, address="b:1", message=MESSAGE, queue=QUEUE
    )


@pytest.mark.proves("client:B-47", "client:B-48", "client:D-90", "client:D-91", "client:D-92")
def test_hooks_run_in_the_given_order_and_their_exceptions_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    hooks = Hooks([Everything("one", calls, fails=True), Everything("two", calls)])
    consume = ConsumeContext(group="g", queue=QUEUE, messages=())
    chosen = FilterMessageContext(group="g", queue=QUEUE, messages=[1, 2, 3])
    end = EndTransactionContext(
        group="g",
        message=MESSAGE,
        message_id="m",
        transaction_id="t",
        address="b:1",
        state="UNKNOW",
        from_check=False,
    )
    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        hooks.before_send(send_context())
        hooks.after_send(send_context())
        hooks.ends_transaction(end)
        hooks.before_consume(consume)
        hooks.after_consume(consume)
        hooks.filter(chosen)
        hooks.before_send(send_context())
    names = ["before_send", "after_send", "end_transaction", "before_consume", "after_consume"]
    names += ["filter_messages", "before_send"]
    assert calls == [f"{who} {what}" for what in names for who in ("one", "two")]
    assert chosen.messages == [1, 2], "the failing hook failed before it took one out"
    assert len(caplog.records) == 6, "each kind is logged once"
    assert "Everything.before_send failed and is ignored" in caplog.text
    assert "a broken hook" in caplog.text


class Refuses(CheckForbiddenHook):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        raise self.error


@pytest.mark.proves("client:B-46")
def test_check_refuses_with_its_own_error_and_a_broken_one_refuses_too() -> None:
    Hooks().check(check_context())
    with pytest.raises(ClientError, check=about(args=("not today",))):
        Hooks([Refuses(ClientError("not today"))]).check(check_context())
    with pytest.raises(ClientError, check=about(what="hook", value="Refuses")):
        Hooks([Refuses(KeyError("x"))]).check(check_context())


def test_hook_is_called_for_its_kinds() -> None:
    class Two(SendHook, RpcHook):
        pass

    two, plain = Two(), Hook()
    hooks = Hooks([two, plain])
    assert hooks.send == hooks.rpc == (two,)
    assert not hooks.consume and not hooks.check_forbidden
    hooks.before_send(send_context())
    assert send_context().message is MESSAGE


def test_settings_accept_only_hooks() -> None:
    assert ClientSettings(hooks=[RpcHook()]).hooks
    with pytest.raises(SettingsError, check=about(setting="hooks")):
        ClientSettings(hooks=[print])
