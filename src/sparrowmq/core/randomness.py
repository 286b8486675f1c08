"""SparrowMQ's random number generator, for choices that only spread load; secrets come from `secrets`.

The functions of the module `random` share one generator with the whole process. If a program seeds that
generator to get repeatable choices, SparrowMQ's choices in other threads would disturb them, and would repeat
as well.
"""

from __future__ import annotations

import os
import random
from typing import Final

RANDOM: Final = random.Random()
"""The default generator. A forked child gets different numbers than its parent."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RANDOM.seed)
