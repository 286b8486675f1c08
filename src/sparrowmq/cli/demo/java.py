"""The check for Java 17 or later, which Spark needs: it fails earlier and more clearly than Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from sparrowmq.cli.base.common import UsageError

JAVA_MIN: Final = 17
ADVICE: Final = "install one (on Debian: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at it"


def major_version(text: str) -> int | None:
    """The major version in the output of `java -version`; 1.8 counts as 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def java_command() -> str | None:
    """The program that Spark will start: JAVA_HOME's, or else the one in PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def check_java() -> None:
    """Raises `UsageError` if Java is missing or too old."""
    command = java_command()
    if command is None:
        raise UsageError(f"Spark needs Java {JAVA_MIN} or later and none was found; {ADVICE}", what="java")
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise UsageError(
            f"{command} cannot be run ({error.strerror}); Spark needs Java {JAVA_MIN}: {ADVICE}",
            what="java",
            value=command,
        ) from error
    version = major_version(said.stderr + said.stdout)
    if version is None or version < JAVA_MIN:
        known = f"Java {version}" if version else "an unknown version of Java"
        text = f"{command} is {known}; Spark needs Java {JAVA_MIN} or later: {ADVICE}"
        raise UsageError(text, what="version", value=version, limit=JAVA_MIN)
