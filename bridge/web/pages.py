"""Renders pages: every value is escaped, characters that can't be seen are shown, and a forgotten name is an error."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from bridge import web
from bridge.api.callers import Asker
from bridge.api.problems import invalid, noted, too_long
from bridge.errors import BridgeError
from bridge.settings import Settings


class Pages:
    """The templates, and what every page knows."""

    def __init__(self, settings: Settings) -> None:
        """Take the settings, in which ``web.url`` is set."""
        self.home: Final = (settings.web.url or "").rstrip("/")
        self.sign_in: Final = tuple(one.url for one in settings.issuers if one.oauth_client_id is not None)
        """The GitLabs whose users people can link themselves."""
        self.issuers: Final = tuple(one.url for one in settings.issuers)
        self._templates = Environment(
            loader=PackageLoader(web.__name__, "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        # Browsers hold the redirection after a form against form-action too, so GitLab's sign-in is named.
        targets = " ".join(["'self'", *sorted({origin(url) for url in self.sign_in})])
        self._policy = (
            f"default-src 'none'; style-src 'self'; form-action {targets}; base-uri 'none'; frame-ancestors 'none'"
        )

    def show(self, person: Asker, template: str, **values: Any) -> Response:
        """Return a page for somebody whom the broker has answered."""
        return self._html(template, 200, dict(person.response.headers), values)

    def go(self, person: Asker, address: str) -> Response:
        """Return the answer that sends the browser on after a form (RFC 9110 section 15.4.4)."""
        return RedirectResponse(address, 303, dict(person.response.headers))

    def failed(self, error: BridgeError, status: int | None = None) -> Response:
        """Return the page that says no; a 401 asks the browser for a ticket, so no other refusal is one."""
        asks = error.code.startswith("negotiate.")
        status = status or (403 if error.status == 401 and not asks else error.status)
        headers = {"WWW-Authenticate": "Negotiate"} if status == 401 else {}
        if error.retryable:
            headers["Retry-After"] = "5"
        values = {
            "title": error.title,
            "remedy": error.remedy,
            "code": error.code,
            "reference": noted(error, status),
            "asks": asks,
        }
        return self._html("failed.html", status, headers, values)

    def _html(self, template: str, status: int, headers: dict[str, str], values: dict[str, Any]) -> Response:
        text = self._templates.get_template(template).render(home=self.home, **values)
        return HTMLResponse(text, status, {**headers, "Content-Security-Policy": self._policy})


class PageRoute(APIRoute):
    """A route whose errors are pages too, with the codes and references that the API has."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See ``APIRoute``."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except BridgeError as error:
                return (await pages(request)).failed(error)
            except RequestValidationError:
                return (await pages(request)).failed(invalid())
            except HTTPException as error:
                if error.status_code != 413:
                    raise
                return (await pages(request)).failed(too_long(), 413)

        return handler


async def pages(request: Request) -> Pages:
    """Return the pages that the composition root made."""
    found: Pages = request.app.state.pages
    return found


def origin(url: str) -> str:
    """Return the origin of an https URL as browsers write it (RFC 6454 section 6.2): without the usual port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.removesuffix(':443')}"


def visible(value: object) -> object:
    """Return what a template writes for a value: characters that would not be seen, or turn the line, by their number.

    A GitLab login is a stranger's text on a page where somebody says yes.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(one if one.isprintable() else f"\\u{{{ord(one):x}}}" for one in value)
