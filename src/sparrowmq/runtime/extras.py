"""What to type to install an extra into the environment of the Python that runs this."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def install_line(extra: str) -> str:
    """The command line. It names the `pip` beside this Python if another one, or none, is first on PATH."""
    beside = Path(sys.executable or "python").with_name("pip")  # an embedded Python has no executable
    return f"{_pip(beside, shutil.which('pip'))} install 'sparrowmq[{extra}]'"


def _pip(beside: Path, found: str | None) -> str:
    if not beside.exists() or (found is not None and beside.samefile(found)):
        return "pip"
    try:
        return shlex.quote(str(beside.relative_to(Path.cwd())))
    except (OSError, ValueError):  # no working directory, or not below it
        return shlex.quote(str(beside))
