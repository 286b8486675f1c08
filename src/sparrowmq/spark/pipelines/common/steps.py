"""The plan of a pipeline, returned before it runs. Values only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.spark.offsets.offsets import Span

WAIT: Final = "{:,} messages wait"
AT_MOST: Final = "{:,} messages at most"
ABOUT: Final = "about {:,} messages"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a verb, its object, and figures or places by name."""

    action: str
    what: str
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a run of `pipeline`, in order; `rows` is how many messages wait now, None if not known."""

    pipeline: str
    steps: tuple[Step, ...]
    rows: int | None = None
    rows_text: str = WAIT
    """What `rows` means; of pipelines that only read: how many there are, as far as that is known before."""

    def lines(self) -> Iterator[str]:
        """The plan as text, a line for each step and each detail."""
        waiting = "" if self.rows is None else f", {self.rows_text.format(self.rows)}"
        count = len(self.steps)
        steps = f"{count} step{'' if count == 1 else 's'}" if count else "nothing to do"
        yield f"{self.pipeline}: {steps}{waiting}"
        for number, step in enumerate(self.steps, 1):
            yield f"{number:>3}. {step.action} {step.what}"
            for name, value in step.details.items():
                yield f"     {name}: {value}"

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON value."""
        steps = [
            {
                "action": step.action,
                "what": step.what,
                "details": {k: str(v) for k, v in step.details.items()},
            }
            for step in self.steps
        ]
        return {"pipeline": self.pipeline, "rows": self.rows, "steps": steps}

    def __str__(self) -> str:
        return "\n".join(self.lines())


def offsets(spans: Iterable[Span]) -> dict[str, str]:
    """The offsets of each queue, as details of a step."""
    found: dict[str, str] = {}
    for span in spans:
        before = found.get(str(span.queue))
        text = f"{span.start} to before {span.end}"
        found[str(span.queue)] = f"{before}, {text}" if before else f"offsets {text}"
    return found


def reads(action: str, spans: Collection[Span]) -> list[Step]:
    """A step for each topic of these spans."""
    topics = sorted({span.queue.topic for span in spans})
    return [Step(action, topic, offsets(s for s in spans if s.queue.topic == topic)) for topic in topics]
