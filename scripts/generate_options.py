"""Writes `sparrowmq/client/base/options.py`: the settings of clients as keyword arguments.

    python -m scripts.generate_options            write the file
    python -m scripts.generate_options --check    say (exit status 1) whether it is stale

Each settings class becomes a TypedDict with the same names and types, and the other names of keywords. None
leaves a setting as it is.
"""

from __future__ import annotations

import ast
import sys

from scripts.generated import ROOT, formatted, write

from sparrowmq.client.base.settings import OTHER_NAMES

BASE = ROOT / "src" / "sparrowmq" / "client" / "base"
TARGET = BASE / "options.py"
KINDS = {
    "ClientSettings": "what all clients take",
    "ProducerSettings": "what `Producer` takes",
    "ConsumerSettings": "what `PushConsumer` takes",
    "PullSettings": "what `PullConsumer` takes",
}
HEADER = '''"""Settings as keyword arguments. Made by scripts/generate_options.py: do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
'''


def options_name(settings: str) -> str:
    """The name of a settings class's TypedDict."""
    return f"{settings.removesuffix('Settings')}Options"


def plain_type(annotation: ast.expr) -> ast.expr:
    """A field's type without its range."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        return annotation.slice.elts[0]
    return annotation


def class_lines(definition: ast.ClassDef) -> list[str]:
    """The source of one TypedDict."""
    bases = [options_name(base.id) for base in definition.bases if isinstance(base, ast.Name)]
    head = f"class {options_name(definition.name)}({', '.join(bases or ['TypedDict'])}, total=False):"
    lines = ["", "", head, f'    """Settings as keyword arguments: {KINDS[definition.name]}."""', ""]
    kinds: dict[str, str] = {}
    for field in definition.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            kind = ast.unparse(plain_type(field.annotation))
            kinds[field.target.id] = kind if kind.endswith("None") else f"{kind} | None"
    others = {
        other: kinds[name] for other, name in OTHER_NAMES.items() if name in kinds and other not in kinds
    }
    return lines + [f"    {name}: {kind}" for name, kind in {**others, **kinds}.items()]


def generate() -> str:
    """The source of the target, formatted."""
    tree = ast.parse((BASE / "settings.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in KINDS]
    lines = [line for node in classes for line in class_lines(node)]
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    imports = [line for line in imports if "__future__" not in line]
    imports.append(f"from sparrowmq.client.base.settings import {', '.join(own)}")
    source = HEADER + "\n".join([*(f"    {line}" for line in imports), *lines, ""])
    return formatted(source, TARGET, "I,F401")


if __name__ == "__main__":
    sys.exit(write(generate(), TARGET))
