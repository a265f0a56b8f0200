"""Reads `application/x-www-form-urlencoded` bodies, and writes the few HTML pages of the stand-in."""

from collections.abc import Mapping
from html import escape
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.responses import HTMLResponse

from realm.gitlab.errors import ApiError

MAX_FORM_BYTES = 64 * 1024

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>{head}</head>
<body><main><h1>{title}</h1>
{body}
</main></body>
</html>
"""


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of a field that comes twice the last counts, as in Rails.

    Raises:
        ApiError: 413 when the body is too large, 400 when it is not a form.
    """
    body = await request.body()
    if len(body) > MAX_FORM_BYTES:
        raise ApiError(413, "413 Request Entity Too Large")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=100))
    except ValueError as error:
        raise ApiError(400, "400 Bad request") from error


def page(title: str, body: str, *, head: str = "", status: int = 200) -> HTMLResponse:
    """An HTML page; `body` and `head` are HTML, the title is text."""
    text = _PAGE.format(title=escape(title), head=head, body=body)
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def form(action: str, hidden: Mapping[str, str], inner: str) -> str:
    """A POST form with hidden fields around `inner`, which is HTML."""
    fields = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in hidden.items()
    )
    return f'<form method="post" action="{escape(action)}" accept-charset="UTF-8">{fields}{inner}</form>'
