"""Collects every stable error code that bridge/ and runner/ can raise, from their syntax trees.

A code is the argument of one of our error classes, or of a function that hands its own parameter on to one of them
(``token_refused("expired", ...)`` raises ``token.expired``). Such functions are found, not listed, so that a new one is
followed by itself; a call whose code can't be followed must stand in RELAYS, with what it may say in DYNAMIC.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
ROOMS = ("bridge", "runner")

CODE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")

CODE_ARGUMENT = {
    **dict.fromkeys(
        ("TokenRefused", "PolicyRefused", "RequestRefused", "Conflict", "NotFound", "Outage", "TooMany", "Defect"),
        (0, "code"),
    ),
    "VerbFailed": (0, "code"),
    "CallFailed": (1, "code"),
}
"""The classes that carry a code: position and name of that argument."""

RELAYS = {
    "runner/executor/client.py",
    "runner/executor/ending.py",
}
"""Files that pass on a code that came over a wire, and was raised somewhere else."""

DYNAMIC = {
    **dict.fromkeys(("stage.refused", "stage.outage", "stage.cancelled"), ("runner/executor/ending.py", "stage.{")),
    "login.agent_error": ("bridge/cluster/agent.py", '"login.agent_error"'),
    "system.error": ("bridge/cli/output.py", "[system.error]"),
}
"""Codes that are made otherwise, with the file and the text in it that makes them: the outcome of an end frame without
an error, an agent's code that is none, and what a command prints for an error of the system."""

HOLE = "{}"
"""Stands in a template for the argument that a caller gives."""


@dataclass(frozen=True)
class Forwarder:
    """A function that makes a ``kind`` whose code is ``template`` filled with the argument ``position``/``name``."""

    kind: str
    template: str
    position: int
    name: str


@dataclass(frozen=True)
class Module:
    """One source file: what it defines, and under which names it knows what others define."""

    path: str
    name: str
    tree: ast.Module

    @property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Local name to (module, name there), for every ``from module import name``."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


class Codes:
    """All codes: ``found`` has the places that raise each, ``kinds`` the classes, ``unfollowed`` what can't be read."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._modules = list(modules)
        self._forwarders: dict[tuple[str, str], set[Forwarder]] = {}
        self.found: dict[str, set[str]] = {}
        self.kinds: dict[str, set[str]] = {}
        self.unfollowed: set[str] = set()
        while self._pass():
            pass

    def _pass(self) -> bool:
        """Go through every call once; tell whether a forwarder came to light, so that its callers must be seen."""
        known = sum(map(len, self._forwarders.values()))
        for module in self._modules:
            imports = module.imports
            for function, call in _calls(module.tree):
                for made, argument in self._codes(module, imports, call):
                    self._take(module, function, made, argument)
        return sum(map(len, self._forwarders.values())) > known

    def _codes(
        self, module: Module, imports: dict[str, tuple[str, str]], call: ast.Call
    ) -> Iterator[tuple[Forwarder, ast.expr]]:
        """Give each error that a call may make, and the argument that completes its code."""
        name = _name(call.func)
        if name in CODE_ARGUMENT:
            position, keyword = CODE_ARGUMENT[name]
            argument = _argument(call, position, keyword)
            if argument is not None:
                yield Forwarder(name, HOLE, position, keyword), argument
            return
        homes = [(module.name, name), imports.get(name, ("", name))]
        for forwarder in set().union(*(self._forwarders.get(home, set()) for home in homes)):
            argument = _argument(call, forwarder.position, forwarder.name)
            if argument is not None:
                yield forwarder, argument

    def _take(self, module: Module, function: ast.FunctionDef | None, made: Forwarder, argument: ast.expr) -> None:
        text, place = _text(argument), f"{module.path}:{argument.lineno}"
        if text is not None:
            code = made.template.replace(HOLE, text)
            self.found.setdefault(code, set()).add(place)
            self.kinds.setdefault(code, set()).add(made.kind)
            return
        inner = _parameter(argument, function)
        if inner is None or function is None:
            self.unfollowed.add(place)
            return
        pattern, name, position = inner
        forwarder = Forwarder(made.kind, made.template.replace(HOLE, pattern), position, name)
        self._forwarders.setdefault((module.name, function.name), set()).add(forwarder)


def collect(checkout: Path = CHECKOUT) -> Codes:
    """Read both packages of a checkout."""
    return Codes(_modules(checkout))


def code_like_constants(checkout: Path = CHECKOUT) -> dict[str, set[str]]:
    """Every string constant that looks like a code, by text, with its places; names of log events are left out."""
    places: dict[str, set[str]] = {}
    for module in _modules(checkout):
        calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
        events = {id(call.args[0]) for call in calls if _is_log_call(call)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and id(node) not in events and CODE.fullmatch(_text(node) or ""):
                places.setdefault(str(node.value), set()).add(f"{module.path}:{node.lineno}")
    return places


def _modules(checkout: Path) -> Iterator[Module]:
    for room in ROOMS:
        for path in sorted((checkout / room).rglob("*.py")):
            relative = path.relative_to(checkout).as_posix()
            name = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            yield Module(relative, name, ast.parse(path.read_text(encoding="utf-8"), relative))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    """Give each call with the innermost function that it stands in."""
    waiting: list[tuple[ast.FunctionDef | None, ast.AST]] = [(None, tree)]
    while waiting:
        function, node = waiting.pop()
        if isinstance(node, ast.Call):
            yield function, node
        inner = node if isinstance(node, ast.FunctionDef) else function
        waiting += [(inner, child) for child in ast.iter_child_nodes(node)]


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    if len(call.args) > position and not any(isinstance(one, ast.Starred) for one in call.args[: position + 1]):
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == keyword), None)


def _parameter(argument: ast.expr, function: ast.FunctionDef | None) -> tuple[str, str, int] | None:
    """Give (pattern, parameter, its position) where the argument is a parameter, or an f-string around one."""
    if function is None:
        return None
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    offset = 1 if names[:1] in (["self"], ["cls"]) else 0
    pattern, inner = HOLE, argument
    if isinstance(argument, ast.JoinedStr):
        holes = [part.value for part in argument.values if isinstance(part, ast.FormattedValue)]
        if len(holes) != 1:
            return None
        pattern = "".join(HOLE if isinstance(p, ast.FormattedValue) else str(_text(p)) for p in argument.values)
        inner = holes[0]
    if isinstance(inner, ast.Name) and inner.id in names:
        return pattern, inner.id, names.index(inner.id) - offset
    return None


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_log_call(call: ast.Call) -> bool:
    levels = ("debug", "info", "warning", "error", "exception")
    return isinstance(call.func, ast.Attribute) and call.func.attr in levels and bool(call.args)
