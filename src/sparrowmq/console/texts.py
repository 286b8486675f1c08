"""The console's words in English and Chinese, from one catalogue: `catalogue.toml`.

Texts from elsewhere (names, reasons, errors of brokers, findings of services) are shown unchanged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "zh": "中文"}
"""Languages by their code, which is also that of a page's `lang`."""
DEFAULT: Final = "en"
_PLACE: Final = {name: index for index, name in enumerate(LANGUAGES)}


@cache
def catalogue() -> Mapping[str, tuple[str, ...]]:
    """Every text by its key, in the order of `LANGUAGES`."""
    read = tomllib.loads((files("sparrowmq.console") / "catalogue.toml").read_text("utf-8"))
    return {
        f"{section}.{name}": tuple(texts) for section, names in read.items() for name, texts in names.items()
    }


class Words:
    """One language's words. Calling it gives the text of a key, with values put in."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._place = _PLACE[language]

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key`. Raises `KeyError` for a key missing from the catalogue, which is a bug."""
        text = catalogue()[key][self._place]
        return text.format(**values) if values else text

    def named(self, section: str, name: str) -> str:
        """The text for a name used by the program, or the name itself if there is none."""
        found = catalogue().get(f"{section}.{name}")
        return found[self._place] if found else name


@cache
def words(language: str) -> Words:
    """The words of a language."""
    return Words(language)


def preferred(header: str) -> str:
    """The first available language among those a browser prefers, from its `Accept-Language` header. Pure."""
    asked = []
    for index, part in enumerate(header[:500].split(",")):
        name, _, weight = part.partition(";q=")
        try:
            asked.append((-float(weight or 1), index, name.strip()[:2].lower()))
        except ValueError:
            continue
    return next((name for _, _, name in sorted(asked) if name in LANGUAGES), DEFAULT)
