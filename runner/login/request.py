"""One request of the bridge, and typed access to its fields."""

from __future__ import annotations

from typing import Any

from runner.login.failures import malformed

_MISSING: Any = object()


class Request:
    """A request's header and data; every accessor raises VerbFailed (``agent.request``) for a wrong type."""

    __slots__ = ("data", "header")

    def __init__(self, header: dict[str, Any], data: bytes) -> None:
        self.header = header
        self.data = data

    @property
    def number(self) -> int:
        """The request's id."""
        return self.integer("id", 0, 2**53)

    def text(self, key: str, default: str | None = None) -> str:
        """Give a string without NUL; ``default`` stands in for a field that is missing or null."""
        value = self.header.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or "\0" in value:
            raise malformed(f"{key} must be a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """Give a string, or None where the field is missing or null."""
        return None if self.header.get(key) is None else self.text(key)

    def integer(self, key: str, lowest: int, highest: int, default: int = _MISSING) -> int:
        """Give an integer within bounds."""
        value = self.header.get(key)
        if value is None and default is not _MISSING:
            return default
        if type(value) is not int or not lowest <= value <= highest:
            raise malformed(f"{key} must be an integer from {lowest} to {highest}")
        return value

    def seconds(self, key: str, default: float) -> float:
        """Give a length of time from 0 to 600 seconds."""
        value = self.header.get(key, default)
        if type(value) not in (int, float) or not 0 <= value <= 600:
            raise malformed(f"{key} must be from 0 to 600 seconds")
        return float(value)

    def flag(self, key: str) -> bool:
        """Give a boolean; missing is false."""
        value = self.header.get(key, False)
        if not isinstance(value, bool):
            raise malformed(f"{key} must be true or false")
        return value

    def texts(self, key: str) -> list[str]:
        """Give a list of strings without NUL."""
        value = self.header.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
            raise malformed(f"{key} must be a list of strings")
        return value

    def environment(self, key: str) -> dict[str, str]:
        """Give an object of variables whose names can be set."""
        value = self.header.get(key) or {}
        if not isinstance(value, dict) or not all(_is_variable(name, text) for name, text in value.items()):
            raise malformed(f"{key} must be an object of variables")
        return value


def _is_variable(name: object, text: object) -> bool:
    return (
        isinstance(name, str) and isinstance(text, str) and name.isascii() and name.isidentifier() and "\0" not in text
    )
