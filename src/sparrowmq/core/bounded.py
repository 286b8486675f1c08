"""Bounded caches for keys from untrusted sources.

A client that chooses the keys also chooses their number and length. So `remembered` is `functools.lru_cache`
for functions of strings, but does not keep long strings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar

SHORT_CHARS: Final = 256
LONG_CHARS: Final = 32 * 1024
"""See `remembered`."""

V = TypeVar("V")
P = ParamSpec("P")


def remembered(entries: int, *, long_entries: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Decorate a pure function of strings: cache the results of the latest `entries` arguments.

    For arguments with more than 256 characters in total only `long_entries` results are cached, and above 32
    Ki none, so that the cache stays small for any input. Exceptions are not cached.
    """

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        short, long = lru_cache(maxsize=entries)(function), lru_cache(maxsize=long_entries)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            chars = sum(len(text) for text in args if isinstance(text, str))
            if chars > LONG_CHARS:
                return function(*args, **kwargs)
            return (short if chars <= SHORT_CHARS else long)(*args, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate
