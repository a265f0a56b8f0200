"""The sign-in page at `/users/sign_in`, and signing out."""

import secrets
from html import escape
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from realm.gitlab.auth import BLOCKED
from realm.gitlab.forms import form, page, read_form
from realm.gitlab.instance import Instance
from realm.gitlab.model import User
from realm.gitlab.sessions import Session, keep, signed_in

Form = Annotated[dict[str, str], Depends(read_form)]

SIGN_IN = "/users/sign_in"
_FIELDS = (
    '<p><label>Username or primary email <input name="user[login]" autocomplete="username" required></label></p>'
    '<p><label>Password <input type="password" name="user[password]" autocomplete="current-password" required>'
    '</label></p><p><button type="submit">Sign in</button></p>'
)


def routes(instance: Instance) -> APIRouter:
    """The pages by which a browser becomes somebody."""
    router = APIRouter()

    @router.get(SIGN_IN)
    def show(request: Request) -> Response:
        session = instance.sessions.of(request) or instance.sessions.begin()
        if signed_in(instance.store, session) is not None:
            return RedirectResponse("/", 302)
        return _sign_in_page(session)

    @router.post(SIGN_IN)
    def sign_in(request: Request, fields: Form) -> Response:
        session = instance.sessions.of(request)
        if session is None or not session.owns(fields.get("authenticity_token", "")):
            return page("The change you requested was rejected.", "", status=422)
        user = _authenticated(instance, fields.get("user[login]", ""), fields.get("user[password]", ""))
        if user is None:
            return _sign_in_page(session, "Invalid login or password.")
        if user.state != "active":
            return _sign_in_page(session, BLOCKED)
        return keep(RedirectResponse(session.return_to or "/", 302), instance.sessions.sign_in(session, user.id))

    @router.post("/users/sign_out")
    def sign_out(request: Request, fields: Form) -> Response:
        session = instance.sessions.of(request)
        if session is not None and session.owns(fields.get("authenticity_token", "")):
            instance.sessions.end(session)
        return RedirectResponse(SIGN_IN, 302)

    return router


def _authenticated(instance: Instance, login: str, password: str) -> User | None:
    """The user with this name or address, if the password is theirs; their personal access token serves as well."""
    user = instance.store.users.find(lambda user: bool(login) and login in (user.username, user.email))
    if user is None or not password:
        return None
    good = [secret for secret in (user.password, user.token) if secret]
    return user if any(secrets.compare_digest(secret.encode(), password.encode()) for secret in good) else None


def _sign_in_page(session: Session, alert: str = "") -> Response:
    notice = f'<p role="alert">{escape(alert)}</p>' if alert else ""
    body = notice + form(SIGN_IN, {"authenticity_token": session.authenticity_token}, _FIELDS)
    return keep(page("Sign in", body), session)
