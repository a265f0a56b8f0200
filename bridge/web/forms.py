"""Reads a form that a page of ours has posted: bounded, each field once, and none that is not known (T38).

``application/x-www-form-urlencoded`` (WHATWG URL, section 5) only; nothing here reads multipart bodies or files.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from bridge.api.problems import invalid

MAX_FORM_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 8

M = TypeVar("M", bound="Form")


class Form(BaseModel):
    """A form whose fields are all texts, as forms are."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def posted(kind: type[M]) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """Return the dependency that reads a form of this kind; it raises RequestRefused ``request.*``."""

    async def read(request: Request) -> M:
        return parsed(kind, await _body(request))

    return read


def parsed(kind: type[M], body: bytes) -> M:
    """Return the form that ``body`` is; raises RequestRefused ``request.invalid``."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=MAX_FIELDS,
            separator="&",
        )
        if len(dict(pairs)) != len(pairs):
            raise invalid()
        return kind.model_validate(dict(pairs))
    except (ValueError, ValidationError) as error:
        raise invalid() from error


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            # As where ``api.bounds`` cuts a body off; ``PageRoute`` renders both.
            raise HTTPException(413)
    return bytes(body)
