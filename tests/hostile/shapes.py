"""What an entry of the hostile load is, and the parts that many share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.hostile.wire import Ask
from tests.hostile.world import World

from sparrowmq.protocol.codes import RequestCode

Make = Callable[[World], list[Ask]]


@dataclass(frozen=True)
class Entry:
    """`said` is for the page. `bombs`: the code reads JSON bodies, so it gets hostile ones, too. `many`: how
    often the requests come in one chunk, as a part of the size's.
    """

    kind: str
    code: int
    said: str
    make: Make
    bombs: bool = False
    repeats: bool = True
    """Whether the whole chunk of many of its first request is sent as well."""
    named: str = ""
    """What it is called that has no request code: a method, a path."""

    @property
    def name(self) -> str:
        """The name of the code, or its own."""
        return self.named or RequestCode(self.code).name

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.kind, self.name

    def asks(self, world: World) -> Iterator[list[Ask]]:
        """Chunks, one after the other."""
        made = self.make(world)
        yield from ([ask] for ask in made)
        if self.repeats:
            small = min(made, key=lambda ask: len(ask.body) + sum(map(len, ask.ext.values())))
            yield [small] * world.size.many
        long = {
            name: "x" * (world.size.body // 4) for name, text in made[0].ext.items() if not is_number(text)
        }
        for name, text in list(long.items())[:2]:
            yield [Ask({**made[0].ext, name: text}, made[0].body)]
        if self.bombs:
            yield from ([Ask(made[0].ext, body)] for body in bombs(world.size.body))


def is_number(text: str) -> bool:
    """Whether a field is a number or a switch."""
    return text.lstrip("-").isdigit() or text in ("true", "false")


def bombs(size: int) -> Iterator[bytes]:
    """JSON that is costly to read: the dialect's references, depth, width, numbers, escapes."""
    yield b'{"$ref":"$","a":[' + b"1," * (size // 2) + b"1]}"
    yield b"[" * (size // 2) + b"]" * (size // 2)
    yield b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(size // 20)) + b"}"
    yield b'{"a":' + b"9" * size + b"}"
    yield b'{"clientID":"' + b"\\u0041" * (size // 6) + b'"}'


def ext(**fields: object) -> dict[str, str]:
    """Header fields as text."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()
    }


def filters(world: World) -> list[str]:
    """SQL that matches nothing and takes long to find that out."""
    terms = world.size.terms
    return [
        " OR ".join(f"a = 'none{number}'" for number in range(terms)),
        " OR ".join(f"a CONTAINS 'none{number}'" for number in range(terms)),
        "(" * 400 + "a = 1" + ")" * 400,
        "NOT " * terms + "a = 1",
        "a IN (" + ",".join(f"'none{number}'" for number in range(terms)) + ")",
    ]


def plain(*made: dict[str, str]) -> Make:
    """Requests by their fields alone."""
    return lambda world: [Ask(fields) for fields in made]
