"""Every error SparrowMQ raises.

SparrowError
├── InvariantError        an invariant is violated; nothing was changed
├── ClientError           the caller or the local client is at fault, or timed out
│   ├── InvalidMessageError, InvalidNameError, InvalidExpressionError, InvalidStateError,
│   │   GroupTakenError
│   ├── NoRouteError, NoNameServerError, NoFencesError, AllocationError
│   └── NoRoomError, ReplyTimeoutError
├── TransportError        bytes could not be exchanged; `retryable`
│   ├── ConnectError, ConnectionLostError, RequestTimeoutError, ListenError
├── BrokerError           a broker or name server answered with an error code
│   └── SequenceTooOldError, ProducerFencedError
├── ProtocolError         bytes that cannot be decoded
│   └── FrameError, HeaderError, RecordError (CompressedBodyError), JavaJsonError, BodyError
├── StoreError            the store cannot be opened, read or written
│   └── NoStoreError, StoreLockedError, StoreCorruptError, StoreFullError, StoreBusyError,
│       StoreFencedError, StoreBrokenError, NoTopicError
├── CoordinatorError      the coordinator or its database cannot serve a request
│   ├── LeaseLostError, EpochBehindError, RefusedError
│   └── DatabaseError
│       └── DatabaseVersionError, DatabaseBusyError, DatabaseFullError, DatabaseGoneError,
│           DatabaseValueError
├── ProxyRefusal          the gRPC proxy refuses a call; `code` is the API's
└── SettingsError         a setting is unknown, out of range or inconsistent

Some are built-in errors, too: `RequestTimeoutError` and `ReplyTimeoutError` are `TimeoutError`,
`ConnectError` and `ConnectionLostError` are `ConnectionError`, `SettingsError`, `InvalidMessageError`,
`InvalidNameError` and `InvalidExpressionError` are `ValueError`. So `except TimeoutError` around requests
also catches those that a broker did not answer: where only the time limit of a block is meant, catch
`SparrowError` first.
"""

from __future__ import annotations


class SparrowError(Exception):
    """Root of all SparrowMQ errors. `retryable` says whether the same call may succeed later.

    Where its class does not say it, `what` names the part or thing that an error is about, `value` is what
    was found there or given for it, and `limit` the bound that it exceeds.
    """

    retryable = False

    def __init__(
        self, message: str = "", *, what: str = "", value: object = None, limit: object = None
    ) -> None:
        super().__init__(message)
        self.what = what
        self.value = value
        self.limit = limit

    def add(self, text: str) -> None:
        """Append to the message what only a caller knows."""
        self.args = (f"{self}{text}", *self.args[1:])

    def __reduce__(self) -> tuple[object, ...]:
        """For copies and other processes: the constructors of some errors take more than the message."""
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[SparrowError], args: tuple[object, ...]) -> SparrowError:
    error = kind.__new__(kind)
    error.args = args  # `OSError` takes them in its constructor only
    return error


class InvariantError(SparrowError):
    """An impossible condition: a defect of SparrowMQ or of a peer. Nothing was changed.

    It is raised where the check is cheap, even with `python -O`.
    """


class ClientError(SparrowError):
    """This client could not execute the call; `code` is RocketMQ's client-side error code or -1."""

    def __init__(
        self,
        message: str,
        *,
        code: int = -1,
        what: str = "",
        value: object = None,
        limit: object = None,
    ) -> None:
        super().__init__(message, what=what, value=value, limit=limit)
        self.code = code


class NoFencesError(ClientError):
    """The broker is not a SparrowMQ broker and has no group policies, so it cannot refuse a member that lost
    a queue.
    """


class InvalidMessageError(ClientError, ValueError):
    """A message breaks a limit: empty or oversized body, wrong properties (client:B-04 to B-10).

    `part` is what is wrong, such as `body` or the name of a property, `value` what it is, or of which row,
    and `limit` the bound it exceeds.
    """

    def __init__(
        self, message: str, *, part: str = "", value: object = None, limit: int | None = None
    ) -> None:
        super().__init__(message, code=13, value=value, limit=limit)
        self.part = part


class InvalidNameError(ClientError, ValueError):
    """A topic or group name is blank, too long, has illegal characters or is reserved."""


class InvalidExpressionError(ClientError, ValueError):
    """A subscription expression cannot be parsed.

    `position` is the index of the error, in characters from 0, and `token` the text there (empty at the end);
    both are None when the expression as a whole is wrong.
    """

    def __init__(self, message: str, *, position: int | None = None, token: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.token = token


class AllocationError(ClientError):
    """An allocation strategy got no queues or no members (client:C-16)."""


class InvalidStateError(ClientError):
    """The object was not started, was started twice or is closed."""


class GroupTakenError(ClientError):
    """The client already has a producer or consumer of this group; choose another name (client:A-31)."""


class NoNameServerError(ClientError):
    """No name server address is configured (client code 10004)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=10004)


class NoRouteError(ClientError):
    """No broker serves `topic` (client code 10005); it is empty where several or none were asked for."""

    retryable = True

    def __init__(self, message: str, *, topic: str = "", what: str = "", value: object = None) -> None:
        super().__init__(message, code=10005, what=what, value=value)
        self.topic = topic


class NoRoomError(ClientError):
    """This process has no room: the `limit` of requests in flight or of waiting bytes was reached.

    Nothing ended before the timeout of the call, and nothing was sent.
    """

    retryable = True

    def __init__(self, message: str, *, code: int = -1, what: str = "", limit: int | None = None) -> None:
        super().__init__(message, code=code, what=what, limit=limit)


TooManyRequestsError = NoRoomError
"""The former name; it goes away after the next release."""


class ReplyTimeoutError(ClientError, TimeoutError):
    """A request was sent, but no reply message arrived in time (client code 10006)."""

    retryable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=10006)


class TransportError(SparrowError):
    """Bytes could not be exchanged with `address`.

    `value` is the code of the request, or the system's error number where a server cannot listen; `limit` is
    the time limit in seconds.
    """

    retryable = True
    code = 10001

    def __init__(
        self, message: str, *, address: str = "", value: object = None, limit: object = None
    ) -> None:
        super().__init__(message, value=value, limit=limit)
        self.address = address


class ConnectError(TransportError, ConnectionError):
    """No connection to the address could be made."""


class ConnectionLostError(TransportError, ConnectionError):
    """The connection closed before the response; the request may or may not have been executed."""


class RequestTimeoutError(TransportError, TimeoutError):
    """No response arrived in time; the request may or may not have been executed."""

    code = 10002


class ListenError(TransportError):
    """A server cannot listen on its address."""

    retryable = False


class BrokerError(SparrowError):
    """A broker or name server answered with error `code` (see `sparrowmq.protocol.codes.ResponseCode`)."""

    def __init__(self, code: int, remark: str, *, address: str = "", request: str = "") -> None:
        where = f" from {address}" if address else ""
        what = f" to {request}" if request else ""
        super().__init__(f"answer {code}{what}{where}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address


class SequenceTooOldError(BrokerError):
    """A repeated message of an idempotent producer is stored, but its offset is no longer known (code 90002).

    `known_from` is the first sequence whose offset is known; all before it are stored. `begins_at` is the
    queue offset of the epoch's first message; None when unknown.
    """

    def __init__(
        self,
        code: int,
        remark: str,
        *,
        address: str = "",
        request: str = "",
        known_from: int = 0,
        begins_at: int | None = None,
    ) -> None:
        super().__init__(code, remark, address=address, request=request)
        self.known_from = known_from
        self.begins_at = begins_at


class ProducerFencedError(BrokerError):
    """A later epoch of an idempotent producer has begun in the queue (code 90004).

    `current` is the queue's epoch; None when the response does not include it.
    """

    def __init__(
        self, code: int, remark: str, *, address: str = "", request: str = "", current: int | None = None
    ) -> None:
        super().__init__(code, remark, address=address, request=request)
        self.current = current


class ProtocolError(SparrowError):
    """Bytes that violate the wire or file format."""


class FrameError(ProtocolError):
    """A frame that cannot be decoded; its connection must be closed."""


class HeaderError(ProtocolError):
    """A header field that is missing or has an invalid value; the frame itself was valid."""


class RecordError(ProtocolError):
    """A stored record, batch body or property string that cannot be decoded."""


class CompressedBodyError(RecordError):
    """A body that is marked as compressed but cannot be decompressed; its record may be intact."""


class JavaJsonError(ProtocolError):
    """Text that is neither JSON nor the JSON dialect of Java peers."""


class BodyError(ProtocolError):
    """Well-formed JSON without the members that the request or response needs."""


class StoreError(SparrowError):
    """The store cannot be opened, read or written."""


class StoreLockedError(StoreError):
    """Another process holds the store directory."""


class StoreCorruptError(StoreError):
    """A store directory whose files cannot belong to a valid store."""


class NoStoreError(StoreError):
    """A directory holds no store, or not one that can be read."""


class StoreFullError(StoreError):
    """No space is left on the device, or its use is above the configured limit."""

    retryable = True


class StoreBusyError(StoreError):
    """The system has no free file descriptors or memory for the store now; nothing was lost."""

    retryable = True


class NoTopicError(StoreError):
    """The broker does not have the topic of a message that it was going to put."""


class StoreFencedError(StoreError):
    """This broker is no longer the master of its group, or cannot be sure that it is: another one may be."""

    retryable = True


class StoreBrokenError(StoreError):
    """An invariant of the store is violated: an internal error.

    Nothing more is stored until the store is reopened, which rebuilds the queues from the log.
    """


class SettingsError(SparrowError, ValueError):
    """A setting is unknown, has the wrong type or is out of range; the message names it and the next step.

    `setting` is its name, `value` what was given (None for secrets and where nothing was), `limit` the bound
    that the value exceeds, and `other` the setting that it needs or contradicts.
    """

    def __init__(
        self,
        message: str,
        setting: str = "",
        value: object = None,
        *,
        limit: object = None,
        other: str = "",
        what: str = "",
    ) -> None:
        super().__init__(message, what=what, value=value, limit=limit)
        self.setting = setting
        self.other = other


class ProxyRefusal(SparrowError):
    """The gRPC proxy refuses a call; `code` is a number of the API's enumeration `Code`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CoordinatorError(SparrowError):
    """The coordinator cannot serve a request."""


class LeaseLostError(CoordinatorError):
    """Another coordinator leads the service `what`, or none does; nothing was changed.

    `value` is the epoch of the other one; None if there is none.
    """


class EpochBehindError(CoordinatorError):
    """Brokers know a later leader than this one; `epoch` is that leader's."""

    def __init__(self, message: str, *, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class RefusedError(CoordinatorError):
    """A request that the coordinator refuses; `status` is the HTTP status with the reason.

    401 not authenticated, 403 not allowed, 404 not found, 409 not in this state, 422 a value out of range,
    429 too many attempts, 503 temporarily unavailable. `retry_seconds`, unless it is 0, is when to try again.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 403,
        retry_seconds: int = 0,
        what: str = "",
        value: object = None,
        limit: object = None,
    ) -> None:
        super().__init__(message, what=what, value=value, limit=limit)
        self.status = status
        self.retry_seconds = retry_seconds


class DatabaseError(CoordinatorError):
    """The coordinator's database refuses a statement, or its driver is missing."""


class DatabaseVersionError(DatabaseError):
    """The database has the tables of another release: revision `value`, None for no tables.

    `limit` is the newest revision that this release knows. The message says what to type.
    """


class DatabaseBusyError(DatabaseError):
    """Another process has locked the database, or all its connections are in use."""

    retryable = True


class DatabaseFullError(DatabaseError):
    """The database has no space left."""

    retryable = True


class DatabaseValueError(DatabaseError):
    """A value cannot be stored or compared: a number or text is too long, or a text has invalid
    characters.
    """


class DatabaseGoneError(DatabaseError):
    """The database cannot be reached."""

    retryable = True
