"""Clients in other languages: RocketMQ's C++ client and `ali-ons` for Node.js, each in a process of its own.

They are installed once, in the versions that `foreign/` pins, into `.cache/` at the root of the repository.
A process takes commands as JSON lines and ends when its standard input closes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.apache import MissingToolError, PeerError, publish
from tests.interop.child import Child, ChildError, Home

FOREIGN: Final = Path(__file__).resolve().parent / "foreign"
CACHE: Final = FOREIGN.parents[2] / ".cache" / "foreign-clients"
INSTALL_SECONDS_MAX: Final = 300
NODE_HINT: Final = "install Node.js 18 or later with npm, e.g.: apt-get install -y nodejs npm"

NAMES: Final = (
    "node",
    *(("cpp",) if sys.platform == "linux" and platform.machine() == "x86_64" else ()),
)
"""The clients that there are for this machine: the C++ one is published for Linux on x86-64 only."""


class ForeignError(ChildError):
    """A call failed in the foreign client."""


def installed(
    name: str, pins: Sequence[str], command: Sequence[str], *, seconds: float = INSTALL_SECONDS_MAX
) -> Path:
    """The directory in which `command` was run, with the files in `pins`; it is kept until they change."""
    stamp = hashlib.sha256(b"".join((FOREIGN / pin).read_bytes() for pin in pins)).hexdigest()[:12]
    target = CACHE / f"{name}-{stamp}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        for pin in pins:
            shutil.copy(FOREIGN / pin, work)
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise PeerError(
                f"{' '.join(command)} ended with {done.returncode}; is the package registry in reach?\n"
                f"{(done.stdout + done.stderr)[-4000:]}"
            )
        publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _node() -> list[str]:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"{' and '.join(missing)} not found on PATH: {NODE_HINT}")
    pins = ("package.json", "package-lock.json")
    directory = installed("node", pins, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    # A program finds its modules in a directory above its own.
    driver = directory / "driver.js"
    driver.write_bytes((FOREIGN / "node_driver.js").read_bytes())
    return ["node", str(driver)]


def _cpp() -> list[str]:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    directory = installed("cpp", ["requirements.txt"], [*pip, "--target", ".", "-r", "requirements.txt"])
    return [sys.executable, str(FOREIGN / "cpp_driver.py"), str(directory)]


class ForeignClient(Child):
    """A process with the client called `name`, one of `NAMES`.

    Raises `MissingToolError` naming what to install, and `PeerError` when the client cannot be installed.
    """

    def __init__(self, name: str) -> None:
        command = _node() if name == "node" else _cpp()
        home = Home(f"{name}-client")
        environment = {**os.environ, "HOME": str(home.path)}
        super().__init__(name, command, home, environment=environment, error=ForeignError)
