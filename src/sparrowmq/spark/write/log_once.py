"""Logs a message once in an application, even if several processes of its driver could log it.

Spark plans a streaming write in one Python worker and commits it in another, and takes fresh workers after a
quiet minute. All of them use the application's local directory, which has a file for each logged message;
without a directory, each process remembers its own messages.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sparrowmq.loops.event_loop import loop_thread

_LOGGED_MAX: Final = 1000


class _Logged(set[str]):
    """Messages that this process has logged."""


def first_time(*what: object) -> bool:
    """Whether this is the first request for this key in the application."""
    name = "sparrowmq-logged-" + blake2b(repr(what).encode(), digest_size=12).hexdigest()
    logged = loop_thread().kept(_Logged)
    if name in logged:
        return False
    if len(logged) >= _LOGGED_MAX:
        logged.clear()
    logged.add(name)
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return not directory or _made(Path(directory) / name)


def _made(file: Path) -> bool:
    """Whether the file is new; also true where no file can be created: twice is better than never."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
