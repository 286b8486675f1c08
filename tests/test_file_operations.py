"""Files are touched in one place, `sparrowmq.files`: checked in the syntax trees of servers and clients.

So a test that puts a simulated disk under `sparrowmq.files.disk` misses no operation. Names of paths are put
together everywhere; what asks the system about them, or changes them, is not.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "sparrowmq"
PACKAGES = ("core", "protocol", "transport", "store", "nameserver", "broker", "client", "files")
HOMES = {ROOT / "files" / "system.py", ROOT / "transport" / "tls.py", ROOT / "transport" / "stall_watch.py"}
"""The operating system's calls; the reader of certificates, which the TLS library opens by name; and the
watch of a loop, which reads Linux' own figures and notes stalls for tests."""

OS_ALLOWED = (
    frozenset({"getpid", "getppid", "environ", "urandom", "sysconf", "geteuid", "strerror", "name"})
    | {"register_at_fork", "stat_result", "statvfs_result", "DirEntry", "SEEK_DATA", "SEEK_HOLE"}
    | {"O_NONBLOCK", "O_RDONLY", "O_RDWR", "O_WRONLY", "O_CREAT", "O_TRUNC", "O_EXCL", "O_CLOEXEC"}
)
"""What of `os` does nothing to a file."""

MODULES = frozenset({"fcntl", "shutil", "tempfile", "glob", "fileinput", "dbm", "sqlite3"})
METHODS = frozenset(
    {"read_bytes", "read_text", "write_bytes", "write_text", "unlink", "mkdir", "rmdir", "rename", "iterdir"}
    | {"glob", "rglob", "exists", "lstat", "chmod", "symlink_to", "hardlink_to"}
)  # fmt: skip
"""Methods of `Path` that make system calls and that no class of ours has."""

CALLED = frozenset({"stat", "touch", "is_file", "is_dir"})
"""The same, when they are called with no argument: others have the names."""

OF_DISK = frozenset({"disk", "_system"})
NOT_PATHS = frozenset({"self", "name_servers"})
"""What has a `replace` of its own."""


def fault(node: ast.AST) -> str | None:
    """Why a node may do something to a file, or None."""
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        return f"import {found[0]}" if found else None
    if isinstance(node, ast.ImportFrom):
        head = (node.module or "").partition(".")[0]
        return f"from {head} import" if head in MODULES | {"os", "mmap"} else None
    if isinstance(node, ast.Attribute):
        owner = _owner(node)
        if owner == "os":
            return None if node.attr in OS_ALLOWED else f"os.{node.attr}"
        return f".{node.attr}" if node.attr in METHODS and owner not in OF_DISK else None
    if isinstance(node, ast.Call):
        return _call_fault(node)
    return None


def _owner(node: ast.Attribute) -> str:
    return getattr(node.value, "id", "") or getattr(node.value, "attr", "")


def _call_fault(node: ast.Call) -> str | None:
    called = node.func
    if isinstance(called, ast.Name):
        return "open()" if called.id == "open" else None
    if not isinstance(called, ast.Attribute):
        return None
    owner = _owner(called)
    if owner in OF_DISK:
        return None
    if (owner, called.attr) == ("mmap", "mmap"):
        return "mmap.mmap()"
    if called.attr == "open" and node.args and isinstance(node.args[0], ast.Constant):
        return ".open(mode)"
    if called.attr in CALLED and not node.args:
        return f".{called.attr}()"
    if called.attr == "replace" and len(node.args) == 1 and not node.keywords and owner not in NOT_PATHS:
        return ".replace(path)"
    return None


def faults(text: str) -> list[str]:
    """What a module's text does to files, each with its line."""
    return [
        f"{getattr(node, 'lineno', 0)}: {found}"
        for node in ast.walk(ast.parse(text))
        if (found := fault(node))
    ]


def modules() -> list[Path]:
    """The modules of these packages, without those in `HOMES`."""
    return sorted(
        path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path not in HOMES
    )


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_leaves_files_to_the_one_that_owns_them(path: Path) -> None:
    assert faults(path.read_text()) == [], f"{path}: use sparrowmq.files.disk"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import os\nos.fdopen(3)", 1),
        ("import os\nos.pwrite(1, b'', 0)", 1),
        ("import os\nos.replace('x', 'y')", 1),
        ("import os\nf = os.fsync", 1),
        ("import os\nos.path.join('x')", 1),
        ("import os\nos.getpid()", 0),
        ("from os import fsync", 1),
        ("import shutil", 1),
        ("with open('x', 'w') as f: pass", 1),
        ("path.open('rb')", 1),
        ("segment.open()", 0),
        ("path.unlink()", 1),
        ("later(path.unlink)", 1),
        ("disk.unlink(path)", 0),
        ("path.replace(other)", 1),
        ("text.replace('a', 'b')", 0),
        ("dataclasses.replace(a, b=1)", 0),
        ("import mmap\nmmap.mmap(1, 2)", 1),
        ("import mmap\nx: mmap.mmap | None = None", 0),
        ("path.stat()", 1),
        ("disk.stat(path)", 0),
        ("path.write_bytes(b'')", 1),
    ],
)
def test_the_check_itself(text: str, count: int) -> None:
    assert len(faults(textwrap.dedent(text))) == count
