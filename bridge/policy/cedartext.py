"""Writes a Cedar expression, given in Cedar's JSON form, as an author would: no brackets that are not needed.

Cedar's own writer brackets every operand. What is written here reads back as the same expression; a test holds that.
Source: docs.cedarpolicy.com, "JSON policy format" and "Grammar specification".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_IF, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(8)
"""How tightly something binds, loosest first."""

_INFIX: Final[Mapping[str, int]] = {
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION),
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
}
_METHODS: Final = frozenset({"contains", "containsAll", "containsAny", "getTag", "hasTag"})
_FUNCTIONS: Final = frozenset({"decimal", "ip", "datetime", "duration"})
_NAME: Final = re.compile(r"(?!(?:true|false|if|then|else|in|is|like|has|__cedar)$)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""What may be an attribute without quotes: an identifier that Cedar has not reserved."""
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def cedar_text(expression: Mapping[str, Any]) -> str:
    """The expression as Cedar text on one line; raises ValueError for what is no expression."""
    return _written(expression, _IF)


def _written(expression: Mapping[str, Any], tightness: int) -> str:
    ((operator, operand),) = expression.items()
    text, binds = _form(operator, operand)
    return f"({text})" if binds < tightness else text


def _form(operator: str, operand: Any) -> tuple[str, int]:
    if operator in _INFIX:
        return _infix(operator, operand)
    if operator in ("!", "neg"):
        return ("!" if operator == "!" else "-") + _written(operand["arg"], _MEMBER), _UNARY
    if operator in ("has", "like", "is"):
        return _test(operator, operand), _RELATION
    if operator == "if-then-else":
        parts = (_written(operand[part], _IF) for part in ("if", "then", "else"))
        return "if {} then {} else {}".format(*parts), _IF
    return _primary(operator, operand), _UNARY if _negative(operator, operand) else _MEMBER


def _infix(operator: str, operand: Mapping[str, Any]) -> tuple[str, int]:
    binds = _INFIX[operator]
    # All but relations group to the left; relations do not group at all.
    left = binds + 1 if binds == _RELATION else binds
    return f"{_written(operand['left'], left)} {operator} {_written(operand['right'], binds + 1)}", binds


def _test(operator: str, operand: Mapping[str, Any]) -> str:
    left = _written(operand["left"], _SUM)
    if operator == "has":
        return f"{left} has {_attribute(operand['attr'])}"
    if operator == "like":
        pieces = (
            "*" if piece == "Wildcard" else _escaped(piece["Literal"]).replace("*", "\\*")
            for piece in operand["pattern"]
        )
        return f'{left} like "{"".join(pieces)}"'
    within = f" in {_written(operand['in'], _SUM)}" if "in" in operand else ""
    return f"{left} is {operand['entity_type']}{within}"


def _primary(operator: str, operand: Any) -> str:
    if operator == "Value":
        return _value(operand)
    if operator == "Var":
        return str(operand)
    if operator == "Set":
        return f"[{', '.join(_written(one, _IF) for one in operand)}]"
    if operator == "Record":
        return f"{{{', '.join(f'{_attribute(name)}: {_written(one, _IF)}' for name, one in operand.items())}}}"
    if operator == ".":
        left, name = _written(operand["left"], _MEMBER), operand["attr"]
        return f"{left}.{name}" if _NAME.fullmatch(name) else f"{left}[{_quoted(name)}]"
    if operator in _METHODS:
        return f"{_written(operand['left'], _MEMBER)}.{operator}({_written(operand['right'], _IF)})"
    if operator == "isEmpty":
        return f"{_written(operand['arg'], _MEMBER)}.isEmpty()"
    if isinstance(operand, list):
        return _call(operator, operand)
    raise ValueError(f"no Cedar expression: {operator}")


def _call(name: str, operands: list[Any]) -> str:
    if name in _FUNCTIONS:
        return f"{name}({', '.join(_written(one, _IF) for one in operands)})"
    first, *rest = operands
    return f"{_written(first, _MEMBER)}.{name}({', '.join(_written(one, _IF) for one in rest)})"


def _negative(operator: str, operand: Any) -> bool:
    return operator == "Value" and isinstance(operand, int) and operand < 0


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict) and "__entity" in value:
        return f"{value['__entity']['type']}::{_quoted(value['__entity']['id'])}"
    if isinstance(value, bool | int):
        return json.dumps(value)
    raise ValueError("no Cedar value")


def _attribute(name: str) -> str:
    return name if _NAME.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(one) or (one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in text)
