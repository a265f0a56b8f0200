"""JSON that can be read in one way only (RFC 8259, the I-JSON profile of RFC 7493), from bytes that a stranger sent.

What ``json.loads`` lets through and is refused here: duplicate members (the last one would win), UTF-16 and UTF-32, a
byte order mark, NaN and Infinity, integers that other parsers round, lone surrogates, and deep nesting.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 6
"""GitLab's deepest claim is a list of objects: three. Twice that leaves room for new ones."""

MAX_INTEGER: Final = 2**53
"""RFC 7493 section 2.2: integers beyond this are not the same number in every parser."""

_MAX_DIGITS: Final = 17


class AmbiguousJson(ValueError):
    """The bytes are not JSON, or can be read in more than one way; the text says why."""


def loads_object(data: bytes, *, most_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The JSON object that ``data`` (UTF-8) holds, nested no deeper than ``most_depth``.

    Raises AmbiguousJson for everything that is not exactly one unambiguous object.
    """
    try:
        text = data.decode("utf-8", errors="strict")
        value = _DECODER.decode(text)
    except AmbiguousJson:
        raise
    except UnicodeDecodeError as error:
        raise AmbiguousJson("not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise AmbiguousJson("not JSON") from error
    if type(value) is not dict:
        raise AmbiguousJson("not an object")
    _check_depth(value, most_depth)
    if "\\u" in text:
        _check_surrogates(value)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise AmbiguousJson("duplicate members")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or abs(number := int(digits)) > MAX_INTEGER:
        raise AmbiguousJson("integer out of range")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise AmbiguousJson("number out of range")
    return number


def _constant(name: str) -> NoReturn:
    raise AmbiguousJson(f"{name} is not JSON")


def _check_depth(value: dict[str, Any] | list[Any], left: int) -> None:
    if left == 0:
        raise AmbiguousJson("nested too deeply")
    for item in value.values() if type(value) is dict else value:
        if type(item) is dict or type(item) is list:
            _check_depth(item, left - 1)


def _check_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise AmbiguousJson("lone surrogate") from error


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
    strict=True,
)
