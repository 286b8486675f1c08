"""Certificates for tests, made by the `openssl` command: an authority, servers, clients, a stranger."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def _openssl(*arguments: str | Path) -> None:
    if shutil.which("openssl") is None:
        raise RuntimeError("the openssl command is missing; install it, e.g.: apt-get install -y openssl")
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"openssl {' '.join(map(str, arguments))}: {done.stderr}"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.pair = Pair(directory / f"{name}.pem", directory / f"{name}.key")
        _openssl("req", "-x509", *KEY, "-nodes", "-keyout", self.pair.key, "-out", self.pair.cert,
                 "-subj", f"/CN={name}", "-days", "2")  # fmt: skip

    @property
    def cert(self) -> Path:
        """The file others trust."""
        return self.pair.cert

    def sign(
        self,
        name: str,
        *,
        names: Sequence[str] = ("IP:127.0.0.1", "DNS:localhost"),
        days: int = 2,
        password: str | None = None,
    ) -> Pair:
        """A certificate for `names`, with a key of its own; below 0 days it has expired."""
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(names)}\n")
        locked = ("-nodes",) if password is None else ("-passout", f"pass:{password}")
        _openssl("req", *KEY, *locked, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        _openssl("x509", "-req", "-in", request, "-CA", self.pair.cert, "-CAkey", self.pair.key,
                 "-out", pair.cert, "-days", str(days), "-extfile", extensions)  # fmt: skip
        return pair


def tls_properties(directory: Path, **names: object) -> Path:
    """A `tls.properties` with `tls.` before each name and dots for double underscores."""
    path = directory / "tls.properties"
    lines = [f"tls.{name.replace('__', '.')}={value}\n" for name, value in names.items()]
    path.write_text("".join(lines))
    return path
