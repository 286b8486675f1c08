"""Logging of SparrowMQ's processes: to standard error, one line per record, even if untrusted text contains
line ends. Lines are text, or JSON for programs that collect logs.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from sparrowmq.core.outside import json_line, lines, one_line
from sparrowmq.core.settings.text import parse_levels
from sparrowmq.transport.occasional import FIELDS

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
INDENT: Final = "    "
"""Prefix of each line of a traceback, so that none looks like a log line."""
OURS: Final = "sparrowmq"


class LineFormatter(logging.Formatter):
    """Escapes line breaks and control characters in messages and in text that tracebacks quote."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line itself."""
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The traceback, indented."""
        return INDENT + lines(super().formatException(ei), INDENT)

    def formatStack(self, stack_info: str) -> str:
        """The stack, indented."""
        return INDENT + lines(super().formatStack(stack_info), INDENT)


class JsonFormatter(logging.Formatter):
    """One object per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`; `error` with the traceback;
    and the figures of the message as fields, if it has any.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, object] = {
            "time": at,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            found["stack"] = record.stack_info
        fields: dict[str, object] = getattr(record, FIELDS, {})
        found |= {name: value for name, value in fields.items() if name not in found}
        try:
            return json_line(found)
        except (TypeError, ValueError):  # a value without a JSON form
            return json_line(json.loads(json.dumps(found, default=str, skipkeys=True)))


def set_up_logging(form: str = "text") -> None:
    """Write warnings and errors to standard error, as `text` or `json`, unless logging was configured before.

    Idempotent; a later call may change the format.
    """
    formatter = JsonFormatter() if form == "json" else LineFormatter()
    for ours in logging.getLogger().handlers:
        if isinstance(ours.formatter, LineFormatter | JsonFormatter):
            ours.setFormatter(formatter)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def set_levels(text: str) -> None:
    """Set the levels of SparrowMQ's loggers, see `parse_levels`. Loggers without their own level use that of
    their parent.

    Raises `SettingsError`.
    """
    levels = parse_levels(text)
    for known in list(logging.root.manager.loggerDict):
        if known == OURS or known.startswith(f"{OURS}."):
            logging.getLogger(known).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
