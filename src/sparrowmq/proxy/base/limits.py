"""Limits and defaults of the API: those of Apache's proxy, unless a comment says otherwise."""

from __future__ import annotations

from typing import Final

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
USER_PROPERTIES_MAX: Final = 128
USER_PROPERTY_BYTES_MAX: Final = 16 * 1024
MESSAGE_GROUP_BYTES_MAX: Final = 64
"""A message group has fewer bytes than this."""
DELAY_MS_MAX: Final = 24 * 3600 * 1000
RECOVERY_SECONDS_MAX: Final = 3600
MESSAGES_OF_SEND_MAX: Final = 1024
"""Messages or acknowledgements in one request; Apache's proxy has no such limit."""

FILTER_CHARS_MAX: Final = 64 * 1024
"""The longest filter expression: brokers read 2,000 tokens, and each receive carries the whole text."""
ACK_BYTES: Final = 4 * 1024
"""Memory of one acknowledgement while its broker is asked, in addition to the request's bytes."""

INVISIBLE_MS_MIN: Final = 10_000
"""Of a receive; a change may set any time from zero."""
INVISIBLE_MS_MAX: Final = 12 * 3600 * 1000
RENEWED_INVISIBLE_MS: Final = 60_000
"""The invisible time of a receive with `auto_renew`."""
RECEIVE_BATCH_MAX: Final = 32
POLL_MS_MIN: Final = 5_000
POLL_MS_MAX: Final = 20_000

SEND_ATTEMPTS: Final = 3
SEND_BACKOFF_MS: Final = 10
SEND_BACKOFF_MS_MAX: Final = 1_000
SEND_BACKOFF_FACTOR: Final = 2.0
RETRY_TIMES: Final = 16
"""Of a group whose settings are not known."""
RETRY_DELAYS_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
EXPONENTIAL_RETRY: Final = (5_000, 2 * 3600 * 1000, 2.0)
"""Initial and longest delay in ms, and the factor, of a group that only specifies EXPONENTIAL."""

NACK_INVISIBLE_MS: Final = 1_000
"""A message that could not be handed over is delivered again after this time."""
CALL_SECONDS: Final = 3.0
"""For requests to brokers other than receives."""
