"""The files of a policy bundle as they lie in a directory, and the hash that names their content.

    schema.cedarschema      entity types, the action and its context
    *.cedar                 permits and forbids
    accounts.toml           GitLab users -> posix accounts
    limits.toml             named envelopes
    clusters.toml           clusters
    roles.toml              who may change policies, stop jobs, read the log (optional)
    cases/*.toml            who must be let in, and who must not

Other files (a README, an editor's backup) are neither read nor hashed.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.policy.problems import InvalidBundle, Problem, from_validation

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
REQUIRED: Final = ("schema.cedarschema", "accounts.toml", "limits.toml", "clusters.toml")
OPTIONAL: Final = ("roles.toml",)

T = TypeVar("T", bound="Table")
E = TypeVar("E", bound=StrEnum)


class Table(BaseModel):
    """A table of a bundle's TOML file: unknown keys are refused, and ``"1"`` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def named(kind: type[E]) -> Callable[[object], object]:
    """For a field of a ``Table``: the member of ``kind`` that a text names, which strict models do not take."""
    return lambda value: kind(value) if isinstance(value, str) else value


def read_files(directory: Path) -> Mapping[str, str]:
    """The text of each of the bundle's files by relative path; raises InvalidBundle."""
    paths = [directory / name for name in REQUIRED]
    paths += [directory / name for name in OPTIONAL if (directory / name).exists()]
    paths += sorted(directory.glob("*.cedar")) + sorted(directory.glob("cases/*.toml"))
    texts, problems = {}, []
    for path in paths:
        name = path.relative_to(directory).as_posix()
        try:
            texts[name] = _read(path)
        except (OSError, ValueError) as error:
            problems.append(Problem(name, None, str(getattr(error, "strerror", None) or error)))
    if problems:
        raise InvalidBundle(problems)
    return MappingProxyType(texts)


def content_hash(texts: Mapping[str, str]) -> str:
    """Hex SHA-256 over path and content of every file, sorted by path, each preceded by its length in bytes."""
    digest = hashlib.sha256()
    for name in sorted(texts):
        for part in (name.encode(), texts[name].encode()):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def parse_toml(name: str, text: str, model: type[T]) -> T:
    """The file ``name`` as ``model``; raises InvalidBundle with file and line."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidBundle([Problem(name, _toml_line(str(error)), str(error))]) from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidBundle(from_validation(name, text, error)) from error


def _read(path: Path) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    return path.read_bytes().decode("utf-8", errors="strict").replace("\r\n", "\n")


def _toml_line(message: str) -> int | None:
    """tomllib says ``... (at line 3, column 4)``."""
    _, found, rest = message.partition("at line ")
    number = rest.partition(",")[0]
    return int(number) if found and number.isdigit() else None
