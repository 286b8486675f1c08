"""Asking a web server for the list of name servers, as RocketMQ's clients do (client:A-70).

`http://<domain>:8080/rocketmq/<subgroup>` answers with one line, `host:port;host:port`. Used when no name
server is given; the list is looked at again every two minutes, so name servers can move.
"""

from __future__ import annotations

import asyncio
import urllib.request
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError

from sparrowmq.client.addresses import parse_namesrv
from sparrowmq.core.errors import ConnectError, SettingsError

FETCH_SECONDS: Final = 3.0
ANSWER_BYTES_MAX: Final = 64 * 1024
DEFAULT_SUBGROUP: Final = "nsaddr"


def address_server_url(domain: str, subgroup: str, unit_name: str | None) -> str:
    """The page that holds the list: port 8080 unless `domain` has one; a unit has a page of its own.

    Raises `SettingsError` for a domain with other parts of a URL in it.
    """
    if not domain or any(sign in domain for sign in "/?#@ "):
        raise SettingsError(
            f"namesrv_domain={domain!r} is no host or host:port; give the address server without http:// and "
            "path"
        )
    place = domain if ":" in domain else f"{domain}:8080"
    unit = f"-{unit_name}?nofix=1" if unit_name else ""
    return f"http://{place}/rocketmq/{subgroup}{unit}"


class AddressServer:
    """One address server, by the URL of its page."""

    def __init__(self, url: str, *, timeout: float = FETCH_SECONDS) -> None:
        self.url = url
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<AddressServer {self.url}>"

    async def fetch(self) -> tuple[str, ...]:
        """The name servers it lists, waiting 3 s at most.

        Raises `ConnectError` when it does not answer, or with something that is no list.
        """
        try:
            async with asyncio.timeout(self._timeout * 2):  # a server that trickles would take for ever
                text = await asyncio.to_thread(self._read)
            found = parse_namesrv(text)
        except (OSError, HTTPException, TimeoutError, SettingsError, ValueError) as error:
            raise ConnectError(self._problem(f"{type(error).__name__}: {error}"), address=self.url) from error
        if not found:
            raise ConnectError(self._problem("its answer is empty"), address=self.url)
        return found

    def _problem(self, what: str) -> str:
        return (
            f"the address server {self.url} gave no list of name servers ({what}); check it, or give the "
            "name servers themselves (namesrv, SPARROW_NAMESRV)"
        )

    def _read(self) -> str:
        """The first line of the page. No proxy is used, as it is a server of one's own network."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url, timeout=self._timeout) as answer:
                body: bytes = answer.read(ANSWER_BYTES_MAX)
        except HTTPError as error:
            error.close()
            raise
        lines = body.decode("utf-8").strip().splitlines()
        return lines[0] if lines else ""
