"""Modules that scripts write: formatted as ruff does, written or checked."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def formatted(source: str, target: Path, rules: str) -> str:
    """`source` as ruff leaves it at `target`, mended by `rules`, e.g. `"I,F401"`."""
    for command in (["check", "--select", rules, "--fix", "--quiet"], ["format", "--quiet"]):
        source = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(target), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return source


def write(source: str, target: Path) -> int:
    """Write `target`; with `--check`, say whether it is fresh instead; the exit status."""
    if "--check" not in sys.argv[1:]:
        target.write_text(source)
        return 0
    fresh = target.exists() and target.read_text() == source
    script = Path(sys.argv[0]).stem
    sys.stdout.write("fresh\n" if fresh else f"{target} is stale: run python -m scripts.{script}\n")
    return 0 if fresh else 1
