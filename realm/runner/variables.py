"""A job's variables as the runner sees them: their order, their expansion, and what must be masked."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_REFERENCE = re.compile(r"\$(?:(\$)|\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True)
class Variable:
    """One variable; a file variable's value is the file's content."""

    key: str
    value: str = field(repr=False)
    file: bool = False
    masked: bool = False
    raw: bool = False


def from_payload(items: Iterable[Mapping[str, Any]]) -> list[Variable]:
    """The variables of a job payload."""
    return [
        Variable(
            key=str(item["key"]),
            value=str(item.get("value") or ""),
            file=bool(item.get("file")),
            masked=bool(item.get("masked")),
            raw=bool(item.get("raw")),
        )
        for item in items
    ]


def from_environment(items: Iterable[str]) -> list[Variable]:
    """The `environment = ["KEY=value"]` list of config.toml."""
    return [Variable(key, value) for key, _, value in (item.partition("=") for item in items) if key]


def expanded(variables: list[Variable]) -> list[Variable]:
    """Each value with its $NAME and ${NAME} replaced once (not recursively); raw ones stay as they are."""
    values = {variable.key: variable.value for variable in variables}

    def value_of(found: re.Match[str]) -> str:
        return "$" if found[1] else values.get(found[2] or found[3] or "", "")

    return [
        variable if variable.raw else replace(variable, value=_REFERENCE.sub(value_of, variable.value))
        for variable in variables
    ]


def lookup(variables: list[Variable], key: str, default: str = "") -> str:
    """The last value of a key."""
    return next((variable.value for variable in reversed(variables) if variable.key == key), default)


def secrets_of(variables: Iterable[Variable], job_token: str) -> list[str]:
    """What must never appear in the log."""
    return [job_token, *(variable.value for variable in variables if variable.masked)]


def attempts(variables: list[Variable], key: str) -> int:
    """A stage's number of attempts, 1 to 10, by GET_SOURCES_ATTEMPTS and its like.

    Raises:
        ValueError: the value is no number in that range.
    """
    text = lookup(variables, key, "1") or "1"
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= 10:
        raise ValueError(f"{key}: number of attempts out of the range [1, 10]")
    return count


def duration(variables: list[Variable], key: str, default: float | None) -> float | None:
    """A Go duration such as `5m` or `1h30m` in seconds, or plain seconds; the default when unset or wrong."""
    text = lookup(variables, key).strip()
    if text.isdecimal():
        return float(text)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", text):
        return default
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text))
