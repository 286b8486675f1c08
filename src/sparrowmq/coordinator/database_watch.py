"""Checks again and again that the database answers, and that it has the tables of this release."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import DatabaseVersionError

CHECK_SECONDS: Final = 5.0
_log = logging.getLogger("sparrowmq.coordinator")


class DatabaseWatch:
    """`run` checks until it is cancelled, or until another release has migrated the database: this release
    must not write other tables.
    """

    def __init__(self, database: Database, sleep: Sleep = asyncio.sleep) -> None:
        self._database = database
        self._sleep = sleep
        self.trouble = ""
        """Why the last check failed; empty when the database answered."""

    def __repr__(self) -> str:
        return f"<DatabaseWatch {self.trouble or 'well'}>"

    async def run(self) -> None:
        """Check. Raises `DatabaseVersionError`."""
        while True:
            await self._sleep(CHECK_SECONDS)
            try:
                await self._database.run(lambda: migrate.check(self._database))
            except DatabaseVersionError as error:
                _log.error("%s", error)
                self.trouble = str(error)
                raise
            except Exception as error:
                _log.warning("%s", error)
                self.trouble = str(error) or type(error).__name__
            else:
                self.trouble = ""
