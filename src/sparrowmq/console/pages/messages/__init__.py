"""Messages: found, followed, looked at one by one, sent by hand; and dead letters."""

from collections.abc import Sequence
from typing import Final

from sparrowmq.console.pages.messages import dead, found, lives, one, sending, waiting
from sparrowmq.console.visits import Form, Page

MODULES: Final = (found, one, lives, sending, dead, waiting)
PAGES: Final[Sequence[Page]] = tuple(page for module in MODULES for page in module.PAGES)
FORMS: Final[Sequence[Form]] = tuple(form for module in MODULES for form in module.FORMS)
