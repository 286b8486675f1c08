"""The start of the command `sparrow`: Ctrl-C while its modules are imported ends it without a traceback.

Imports only small modules of the standard library, so that the handler is installed before typer and the
commands are imported, which takes a third of a second. Nothing is running by then that would need cleaning
up.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells: 128 and the number of the signal."""


def main() -> None:
    """Run the command line of this process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored: `nohup`, `&`
        signal.signal(signal.SIGINT, _leave)
    from sparrowmq.cli.main import main as command

    command()


def hand_over() -> None:
    """From here on, the command itself handles Ctrl-C, as `KeyboardInterrupt`."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    # Not an exception: interrupted imports would print it.
    os._exit(INTERRUPTED)
