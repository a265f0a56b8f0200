"""Reads `multipart/form-data` bodies (RFC 7578) of the size that artifact uploads have in this realm."""

import re
from dataclasses import dataclass
from email.message import Message

from realm.gitlab.errors import ApiError

MAX_BODY_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Part:
    """One form field; `filename` is None for plain values."""

    name: str
    filename: str | None
    content: bytes


def parse_multipart(content_type: str, body: bytes) -> dict[str, Part]:
    """The parts of a body by field name.

    Raises:
        ApiError: 400 when the type has no boundary or the body is not framed by it.
    """
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise ApiError(400, "file is invalid: the body is not multipart/form-data")
    # The first delimiter has no line break before it (RFC 2046 section 5.1.1).
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise ApiError(400, "file is invalid: the multipart body is cut off")
    parts = [_part(piece) for piece in pieces[1:-1]]
    return {part.name: part for part in parts}


def _part(piece: bytes) -> Part:
    head, blank, content = piece.partition(b"\r\n\r\n")
    disposition = re.search(rb"content-disposition:\s*form-data;([^\r\n]*)", head, re.IGNORECASE)
    name = re.search(rb'\bname="([^"]*)"', disposition.group(1)) if disposition else None
    if not blank or disposition is None or name is None:
        raise ApiError(400, "file is invalid: a part has no name")
    filename = re.search(rb'\bfilename="([^"]*)"', disposition.group(1))
    return Part(
        name.group(1).decode(errors="replace"),
        filename.group(1).decode(errors="replace") if filename else None,
        content,
    )
