"""Writes `sparrowmq/client/sync/sync_generated.py`: the synchronous classes, from the asyncio ones.

    python -m scripts.generate_sync            write the file
    python -m scripts.generate_sync --check    say (exit status 1) whether it is stale

Public methods, properties, signatures and docstrings are taken from the syntax trees of the asyncio classes.
`async` methods wait for the background loop; plain ones are called on it. What differs by hand is in
`sync_base` and named in `BASES` and `SPECIAL`.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field

from scripts.generated import ROOT, formatted, write

CLIENT = ROOT / "src" / "sparrowmq" / "client"
TARGET = CLIENT / "sync" / "sync_generated.py"

BASES = {
    "Producer": ("producer.producer", "ProducerFacade"),
    "Consumer": ("push.consumer", "ConsumerFacade"),
    "PushConsumer": ("push.push_consumer", "PushConsumerFacade"),
    "PullConsumer": ("pull.pull_consumer", "PullConsumerFacade"),
    "SimpleConsumer": ("simple.simple_consumer", "SimpleConsumerFacade"),
    "PullSchedule": ("pull.pull_schedule", "PullScheduleFacade"),
    "Admin": ("admin.admin", "AdminFacade"),
}
ADMIN_PARTS = {
    "topics": ("admin.topics", "TopicAdmin"),
    "groups": ("admin.groups", "GroupAdmin"),
    "brokers": ("admin.brokers", "BrokerAdmin"),
    "messages": ("admin.messages", "MessageAdmin"),
    "dead_letters": ("admin.dead_letters", "DeadLetterAdmin"),
    "producers": ("admin.producers", "ProducerAdmin"),
    "users": ("admin.access", "UserAdmin"),
    "holds": ("admin.holds", "HoldAdmin"),
    "policies": ("admin.policies", "PolicyAdmin"),
    "name_servers": ("admin.name_servers", "NameServerAdmin"),
    "replicas": ("admin.replicas", "ReplicaAdmin"),
}
"""The attributes of `Admin` that have its calls."""
CLASSES = {
    **{name: (module, f"AdminPartFacade[_{name}]") for module, name in ADMIN_PARTS.values()},
    **BASES,
}
PARTS = {
    "Consumer": ("push.push_consumer:PushConsumer",),
    "PullConsumer": ("pull.polled_queues:PolledQueues", "pull.queue_lookups:QueueLookups"),
}
"""Bases with further public methods."""
SKIPPED = {
    ("Producer", "submit"),
    *(
        (owner, name)
        for owner in ("Consumer", "PushConsumer")
        for name in ("stream", "message_type", "close_on_signals")
    ),
    *(("Consumer", name) for name in ("handler", "run")),
}
SPECIAL = {
    ("Producer", "send"): (
        "if queue is None and selector is None and hash_key is None:",
        "    return self._send(message, timeout)",
    ),
    ("Consumer", "close"): ("self._let_go()",),
    ("PushConsumer", "close"): ("self._let_go()",),
}
REPLACED = (
    ("async with ", "with "),
    ("async for ", "for "),
    ("await ", ""),
    ("async def ", "def "),
)
HEADER = '"""The synchronous classes. Made by scripts/generate_sync.py: do not edit."""\n'


@dataclass
class Module:
    """One asyncio module: its class, and where the names it uses come from."""

    name: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)

    def definition(self, name: str) -> ast.ClassDef:
        """The class called `name`."""
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def read_module(name: str) -> Module:
    """Parse module `client.<name>` and note what each imported or defined name is."""
    module = Module(name, ast.parse((CLIENT / f"{name.replace('.', '/')}.py").read_text()))
    typing_only = [node for block in module.tree.body if isinstance(block, ast.If) for node in block.body]
    for node in (*module.tree.body, *typing_only):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"from {node.module} import {alias.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    module.imports[target.id] = f"from sparrowmq.client.{name} import {target.id}"
    return module


def names_in(*nodes: ast.AST | None) -> set[str]:
    """Every name used in these parts of a signature."""
    return {
        child.id
        for node in nodes
        if node is not None
        for child in ast.walk(node)
        if isinstance(child, ast.Name)
    }


def docstring(node: ast.AST, indent: str) -> list[str]:
    """The docstring in synchronous words, as source lines."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    text = ast.get_docstring(node) or ""
    assert text, f"{node.name} has no docstring"
    for old, new in REPLACED:
        text = text.replace(old, new)
    lines = text.splitlines()
    if len(lines) == 1:
        return [f'{indent}"""{text}"""']
    return [f'{indent}"""{lines[0]}', *(f"{indent}{line}".rstrip() for line in lines[1:]), f'{indent}"""']


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """How the wrapper passes on its arguments."""
    args = function.args
    assert args.vararg is None and not args.posonlyargs
    parts = [arg.arg for arg in args.args[1:]]
    parts += [f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs]
    parts += [f"**{args.kwarg.arg}"] if args.kwarg else []
    return ", ".join(parts)


def is_property(function: ast.AST) -> bool:
    """Whether a method is a property."""
    return isinstance(function, ast.FunctionDef) and any(
        isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list
    )


def method_lines(owner: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The source of one synchronous method."""
    name, returns = function.name, ast.unparse(function.returns) if function.returns else "None"
    signature = f"    def {name}({ast.unparse(function.args)}) -> {returns}:"
    passed = arguments_of(function)
    body = [f"        {line}" for line in SPECIAL.get((owner, name), ())]
    if is_property(function):
        lines = ["    @property", signature]
        body.append(f"        return self._call(lambda: self._inner.{name})")
    elif isinstance(function, ast.AsyncFunctionDef):
        lines = [signature]
        keyword = "" if returns == "None" else "return "
        body.append(f"        {keyword}self._run(self._inner.{name}{', ' if passed else ''}{passed})")
    else:
        lines = [signature]
        keyword = "" if returns == "None" else "return "
        body.append(f"        {keyword}self._call(lambda: self._inner.{name}({passed}))")
    return [*lines, *docstring(function, "        "), *body, ""]


def class_lines(name: str, module: Module, needed: dict[str, str]) -> list[str]:
    """The source of one synchronous class; notes the imports it needs."""
    definition = module.definition(name)
    lines = [f"class {name}({CLASSES[name][1]}):", *docstring(definition, "    "), ""]
    lines += members_lines(name, definition, module, needed)
    for part in PARTS.get(name, ()):
        module_name, _, class_name = part.partition(":")
        other = read_module(module_name)
        lines += members_lines(name, other.definition(class_name), other, needed)
    return lines


def members_lines(name: str, definition: ast.ClassDef, module: Module, needed: dict[str, str]) -> list[str]:
    """The public members of one asyncio class."""
    lines: list[str] = []
    for function in definition.body:
        if isinstance(function, ast.Assign):  # a former name
            lines += [f"    {ast.unparse(function)}", ""]
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (name, function.name) in SKIPPED or (
            function.name.startswith("_") and function.name != "__init__"
        ):
            continue
        if function.name == "__init__" and (name != definition.name or name not in BASES):
            continue  # the class has its own, or is made by `Admin`
        args = function.args
        every = [*args.args, *args.kwonlyargs, *([args.kwarg] if args.kwarg else [])]
        used = names_in(
            *(arg.annotation for arg in every), function.returns, *args.defaults, *args.kw_defaults
        )
        needed.update(
            {used_name: module.imports[used_name] for used_name in used if used_name in module.imports}
        )
        if function.name == "__init__":
            assert isinstance(function, ast.FunctionDef)
            lines += [f"    def __init__({ast.unparse(args)}) -> None:", *docstring(function, "        ")]
            lines += [f"        super().__init__(_{name}({arguments_of(function)}))"]
            parts = ADMIN_PARTS if name == "Admin" else {}
            lines += [
                f"        self.{part} = {kind}(self._inner.{part})" for part, (_, kind) in parts.items()
            ]
            lines += [""]
        else:
            lines += method_lines(name, function)
    return lines


def generate() -> str:
    """The source of the target, formatted."""
    needed: dict[str, str] = {}
    classes: list[str] = []
    for name, (module_name, _) in CLASSES.items():
        needed[f"_{name}"] = f"from sparrowmq.client.{module_name} import {name} as _{name}"
        classes += ["", *class_lines(name, read_module(module_name), needed)]
    facades = sorted({base.partition("[")[0] for _, base in CLASSES.values()})
    imports = {*needed.values(), f"from sparrowmq.client.sync.sync_base import {', '.join(facades)}"}
    exported = ", ".join(f'"{name}"' for name in sorted(BASES))
    source = "\n".join(
        [
            HEADER,
            "from __future__ import annotations",
            "",
            *sorted(imports),
            "",
            f"__all__ = [{exported}]",
            *classes,
        ]
    )
    return formatted(source, TARGET, "I")


if __name__ == "__main__":
    sys.exit(write(generate(), TARGET))
