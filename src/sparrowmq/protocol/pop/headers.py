"""Typed header fields of POP: handing out, acknowledging and hiding single messages (broker:13).

As in `headers`: fields are strings on the wire, names are Java's class names without "Header". Times are
epoch milliseconds, and `invisible_time` and `poll_time` are milliseconds.
"""

from __future__ import annotations

from sparrowmq.protocol.headers import Header, Int32, Int64


class PopMessageRequest(Header, kw_only=True):
    """POP_MESSAGE (200050): up to `max_msg_nums` messages of a topic for a group, hidden from its other
    members for `invisible_time`.

    `queue_id` -1 means all queues. `poll_time` is how long to wait for messages, counted from `born_time`,
    the client's clock, or from the arrival if that is 0. `init_mode` says where a new group begins: 0 at the
    first message, 1 at the last. `order`: no message of a queue before those handed out earlier are
    acknowledged; a repeated request with the same `attempt_id` gets them again.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponse(Header, kw_only=True):
    """What was handed out; the texts have the forms of `protocol.pop`. `rest_num` messages are left."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(Header, kw_only=True):
    """ACK_MESSAGE (200051): a message is consumed. `topic` is the one that stored it, perhaps a retry topic;
    `extra_info` is its receipt.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class ChangeInvisibleTimeRequest(AckMessageRequest, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): hide a message for `invisible_time` from now on."""

    invisible_time: Int64


class ChangeInvisibleTimeResponse(Header, kw_only=True):
    """The parts of the message's new receipt."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0


class NotificationRequest(Header, kw_only=True):
    """NOTIFICATION (200054): answered when a POP would find a message, or after `poll_time`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationResponse(Header, kw_only=True):
    """Whether there is a message, and whether too many requests wait already."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequest(Header, kw_only=True):
    """POLLING_INFO (200055): how many POP requests wait for a queue, or for all queues (-1)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponse(Header, kw_only=True):
    """Their number."""

    polling_num: Int32
