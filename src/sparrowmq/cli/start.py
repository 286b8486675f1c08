"""Where the command `sparrow` begins: Ctrl-C while its modules are imported ends it without a traceback.

Imports nothing but small modules of the interpreter, so that the handler is there before the third of a
second in which typer and the commands are read. Nothing has been started by then that would need undoing.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the number of the signal."""


def main() -> None:
    """Run the command line of this process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored: `nohup`, `&`
        signal.signal(signal.SIGINT, _leave)
    from sparrowmq.cli.main import main as command

    command()


def hand_over() -> None:
    """From here on the command itself sees Ctrl-C, as `KeyboardInterrupt`."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    # Not an exception: imports that are broken off anywhere would print theirs on the way.
    os._exit(INTERRUPTED)
