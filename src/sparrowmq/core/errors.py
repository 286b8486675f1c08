"""Every error SparrowMQ raises.

SparrowError
├── ClientError           the caller or the local client is at fault, or gave up waiting
│   ├── InvalidMessageError, InvalidNameError, InvalidExpressionError, InvalidStateError,
│   │   GroupTakenError
│   ├── NoRouteError, NoNameServerError, NoFencesError, AllocationError
│   └── TooManyRequestsError, ReplyTimeoutError
├── TransportError        bytes could not be exchanged; `retryable`
│   ├── ConnectError, ConnectionLostError, RequestTimeoutError, ListenError
├── BrokerError           a broker or name server answered with an error code
│   └── SequenceTooOldError
├── ProtocolError         bytes that cannot be understood
│   └── FrameError, HeaderError, RecordError (CompressedBodyError), JavaJsonError, BodyError
├── StoreError            the store cannot be opened, read or written
│   └── StoreLockedError, StoreCorruptError, StoreFullError, StoreBusyError
├── CoordinatorError      the coordinator or its database cannot do it
│   ├── LeaseLostError, EpochBehindError, RefusedError
│   └── DatabaseError
│       └── DatabaseVersionError, DatabaseBusyError, DatabaseFullError, DatabaseGoneError,
│           DatabaseValueError
└── SettingsError         a setting is unknown, out of range or inconsistent
"""

from __future__ import annotations


class SparrowError(Exception):
    """Root of all SparrowMQ errors. `retryable` says whether the same call may succeed later."""

    retryable = False


class ClientError(SparrowError):
    """The call could not be done by this client; `code` is RocketMQ's client-side error code or -1."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class NoFencesError(ClientError):
    """A broker that is not SparrowMQ's keeps no policies of groups: it cannot refuse who lost a queue."""


class InvalidMessageError(ClientError):
    """A message breaks a limit: empty or oversized body, wrong properties (client:B-04 to B-10)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=13)


class InvalidNameError(ClientError):
    """A topic or group name is blank, too long, has illegal characters or is reserved."""


class InvalidExpressionError(ClientError):
    """A subscription expression cannot be parsed.

    `position` is where, in characters from 0, and `token` what stands there (empty at the end); both None
    when the expression as a whole is wrong.
    """

    def __init__(self, message: str, *, position: int | None = None, token: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.token = token


class AllocationError(ClientError):
    """An allocation strategy has nothing to divide, or nobody to divide it among (client:C-16)."""


class InvalidStateError(ClientError):
    """The object was not started, was started twice or is closed."""


class GroupTakenError(ClientError):
    """The client has a producer or consumer of this group already; choose another name (client:A-31)."""


class NoNameServerError(ClientError):
    """No name server address is configured (client code 10004)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=10004)


class NoRouteError(ClientError):
    """No broker serves the topic (client code 10005)."""

    retryable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=10005)


class TooManyRequestsError(ClientError):
    """A bound on requests in flight or the time budget of a call was used up before it could be sent."""

    retryable = True


class ReplyTimeoutError(ClientError):
    """A request was sent, but no reply message came in time (client code 10006)."""

    retryable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=10006)


class TransportError(SparrowError):
    """Bytes could not be exchanged with `address`."""

    retryable = True
    code = 10001

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class ConnectError(TransportError):
    """No connection to the address could be made."""


class ConnectionLostError(TransportError):
    """The connection closed while an answer was outstanding; the request may or may not have been done."""


class RequestTimeoutError(TransportError):
    """No answer came in time; the request may or may not have been done."""

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
    """A repeated message of an idempotent producer is stored, but where is no longer known (code 90002).

    `known_from` is the first sequence whose place is known: all before it are stored.
    """

    def __init__(
        self, code: int, remark: str, *, address: str = "", request: str = "", known_from: int = 0
    ) -> None:
        super().__init__(code, remark, address=address, request=request)
        self.known_from = known_from


class ProtocolError(SparrowError):
    """Bytes that break the wire or file format."""


class FrameError(ProtocolError):
    """A frame that cannot be understood; the connection it came on must be closed."""


class HeaderError(ProtocolError):
    """A header field that is missing or has a value that cannot be read; the frame around it was fine."""


class RecordError(ProtocolError):
    """A stored record, batch body or property string that cannot be understood."""


class CompressedBodyError(RecordError):
    """A body that says it is compressed and cannot be opened; the record around it may be whole."""


class JavaJsonError(ProtocolError):
    """Text that is neither JSON nor the dialect Java peers write."""


class BodyError(ProtocolError):
    """Well-formed JSON whose members are not what the request or answer needs."""


class StoreError(SparrowError):
    """The store cannot be opened, read or written."""


class StoreLockedError(StoreError):
    """Another process holds the store directory."""


class StoreCorruptError(StoreError):
    """A store directory whose files cannot belong to a valid store."""


class StoreFullError(StoreError):
    """No space is left on the device, or its use is above the configured limit."""

    retryable = True


class StoreBusyError(StoreError):
    """The system has no open file or memory left for the store now; nothing was lost."""

    retryable = True


class SettingsError(SparrowError):
    """A setting is unknown, has the wrong type or is out of range; the text names it and the next step."""


class CoordinatorError(SparrowError):
    """The coordinator cannot do it."""


class LeaseLostError(CoordinatorError):
    """Another coordinator leads the service, or nobody does any more: nothing of the change was kept."""


class EpochBehindError(CoordinatorError):
    """Brokers know a later leader than this one should be; `epoch` is theirs."""

    def __init__(self, message: str, *, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class RefusedError(CoordinatorError):
    """A request to the coordinator that is not carried out; `status` is the HTTP status that says why.

    401 not known who asks, 403 not allowed, 404 no such thing, 409 not in this state, 422 a value out of its
    range, 429 too many tries.
    """

    def __init__(self, message: str, *, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class DatabaseError(CoordinatorError):
    """The coordinator's database refuses a statement, or its driver is missing."""


class DatabaseVersionError(DatabaseError):
    """The database's tables are those of another release; the text says which, and what to type."""


class DatabaseBusyError(DatabaseError):
    """The database is locked by somebody else, or all its connections are in use."""

    retryable = True


class DatabaseFullError(DatabaseError):
    """There is no space left for the database."""

    retryable = True


class DatabaseValueError(DatabaseError):
    """A value cannot be kept or compared: a number or text is too long, or has characters no text has."""


class DatabaseGoneError(DatabaseError):
    """The database cannot be reached."""

    retryable = True
