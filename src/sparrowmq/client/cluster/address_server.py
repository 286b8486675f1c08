"""The list of name servers from a web server, as in RocketMQ's clients (client:A-70).

`http://<domain>:8080/rocketmq/<subgroup>` answers with one line, `host:port;host:port`. Used when no name
server is given; the list is read again every two minutes, so name servers can move.
"""

from __future__ import annotations

import asyncio
import urllib.request
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError

from sparrowmq.client.cluster.addresses import parse_namesrv
from sparrowmq.core.errors import ConnectError, SettingsError

FETCH_SECONDS: Final = 3.0
ANSWER_BYTES_MAX: Final = 64 * 1024
DEFAULT_SUBGROUP: Final = "nsaddr"


def address_server_url(domain: str, subgroup: str, unit_name: str | None) -> str:
    """The URL of the list: port 8080 unless `domain` has one; each unit has its own URL.

    Raises `SettingsError` for a domain that contains other parts of a URL.
    """
    if not domain or any(sign in domain for sign in "/?#@ "):
        raise SettingsError(
            f"namesrv_domain={domain!r} is not a host or host:port; give the address server without "
            "http:// and "
            "path",
            "namesrv_domain",
            domain,
        )
    place = domain if ":" in domain else f"{domain}:8080"
    unit = f"-{unit_name}?nofix=1" if unit_name else ""
    return f"http://{place}/rocketmq/{subgroup}{unit}"


class AddressServer:
    """An address server, identified by the URL of its list."""

    def __init__(self, url: str, *, timeout: float = FETCH_SECONDS) -> None:
        self.url = url
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<AddressServer {self.url}>"

    async def fetch(self) -> tuple[str, ...]:
        """The name servers in its list. Waits at most 3 s.

        Raises `ConnectError` when it does not answer or the answer is not a list.
        """
        try:
            async with asyncio.timeout(self._timeout * 2):  # a server that sends slowly would take forever
                text = await asyncio.to_thread(self._read)
            found = parse_namesrv(text)
        except (OSError, HTTPException, TimeoutError, SettingsError, ValueError) as error:
            raise ConnectError(self._problem(f"{type(error).__name__}: {error}"), address=self.url) from error
        if not found:
            raise ConnectError(self._problem("its answer is empty"), address=self.url)
        return found

    def _problem(self, what: str) -> str:
        return (
            f"the address server {self.url} did not return a list of name servers ({what}); check it, or "
            f"give the name servers' addresses (namesrv, SPARROW_NAMESRV)"
        )

    def _read(self) -> str:
        """The first line of the page. No proxy is used, because the server is in the local network."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url, timeout=self._timeout) as answer:
                body: bytes = answer.read(ANSWER_BYTES_MAX)
        except HTTPError as error:
            error.close()
            raise
        lines = body.decode("utf-8").strip().splitlines()
        return lines[0] if lines else ""
