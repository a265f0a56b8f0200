"""Errors as HTTP answers: problem details (RFC 9457) with a stable code, a remedy and a reference, nothing else."""

from __future__ import annotations

from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from bridge.api.cookies import forgotten
from bridge.errors import BridgeError, Defect, NotFound, RequestRefused, TooMany
from bridge.references import new_reference

SEE_CONTRACT: Final = "See docs/architecture.md for what each address takes."

_STATUS: Final = {"policy.changed": 412, "request.precondition_required": 428}
"""Errors that HTTP has a status of its own for: RFC 9110 section 15.5.13, and RFC 6585 section 3."""

log = structlog.get_logger()


def install(app: FastAPI) -> None:
    """Make every error that a route can raise leave as a problem document.

    The handlers are ``async def``: Starlette runs others in threads, where a refusal would wait for whoever holds them.
    """
    app.add_exception_handler(BridgeError, _on_bridge_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)


def problem(error: BridgeError, status: int | None = None) -> Response:
    """Render an error; its context stays here, in the log, under the same reference."""
    status = status or _STATUS.get(error.code, error.status)
    reference = noted(error, status)
    body = {
        "type": f"urn:ci-bridge:{error.code}",
        "code": error.code,
        "title": error.title,
        "remedy": error.remedy,
        "reference": reference,
        "status": status,
    }
    headers = {"Retry-After": "2" if isinstance(error, TooMany) else "5"} if error.retryable else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Negotiate" if error.code.startswith("negotiate.") else "Bearer"
    if error.code == "caller.session":
        headers["Set-Cookie"] = forgotten()
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def noted(error: BridgeError, status: int) -> str:
    """Log an error that is about to be answered; returns its reference, a new one where nobody has recorded it."""
    reference = str(error.context.get("reference") or new_reference())
    context = {key: value for key, value in error.context.items() if key != "reference"}
    log.info("api.problem", code=error.code, reference=reference, status=status, context=context)
    return reference


def invalid() -> RequestRefused:
    """The refusal of a request that is not what its address takes, whatever is wrong with it."""
    return RequestRefused(
        "request.invalid",
        "The request is not of the form that this address takes.",
        SEE_CONTRACT,
    )


def too_long() -> RequestRefused:
    """The refusal of a body over the bound."""
    return RequestRefused("request.too_large", "The request's body is too long.", "Send less.")


async def _on_bridge_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)  # noqa: S101 - Starlette's handler type is wider than its call
    return problem(error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    return problem(invalid())


async def _on_http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    if status == 413:
        return problem(too_long(), status)
    if status == 404:
        return problem(
            NotFound(
                "request.no_such_page",
                "There is nothing at this address.",
                SEE_CONTRACT,
            )
        )
    refused = RequestRefused(
        "request.refused",
        "The request is not one that this address takes.",
        SEE_CONTRACT,
    )
    return problem(refused, status)


async def _on_defect(request: Request, error: Exception) -> Response:
    reference = new_reference()
    log.error("api.defect", reference=reference, kind=type(error).__name__, exc_info=error)
    title, remedy = "The bridge failed at its own work.", "Report the reference to the bridge's operators."
    return problem(Defect("bridge.defect", title, remedy, reference=reference))
