"""When a failed send is tried again, as pure decisions (client:B.8, B-42, B-43)."""

from __future__ import annotations

from collections.abc import Collection

from sparrowmq.core.errors import BrokerError, NoRouteError, SparrowError, TransportError


def is_retryable(error: Exception, retry_codes: Collection[int]) -> bool:
    """Whether a send that failed with `error` may be tried on another queue.

    Transport failures and a broker without a master are; broker answers only with a code in `retry_codes`;
    everything else (a message that breaks a limit, a closed producer, a used-up budget) is not.
    """
    if isinstance(error, TransportError | NoRouteError):
        return True
    return isinstance(error, BrokerError) and error.code in retry_codes


def final_error(
    error: SparrowError, *, topic: str, tries: int, seconds: float, brokers: Collection[str]
) -> SparrowError:
    """`error` of the last try, with a note of what was tried; its type and code stay."""
    if tries > 1:
        where = ", ".join(dict.fromkeys(brokers)) or "no broker"
        error.add_note(f"the send to {topic!r} was tried {tries} times in {seconds:.3f} s, on {where}")
    return error
