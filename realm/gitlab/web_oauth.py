"""The page `/oauth/authorize`, where a signed-in person lets an application know who they are, or does not."""

from html import escape
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from realm.gitlab.forms import form, page, read_form
from realm.gitlab.instance import Instance
from realm.gitlab.model import User
from realm.gitlab.oauth_codes import REQUEST_FIELDS, AuthorizationRequest, approve, checked, refusal
from realm.gitlab.oauth_errors import OAuthError, error_response
from realm.gitlab.sessions import Session, keep, signed_in
from realm.gitlab.web_sign_in import SIGN_IN

Form = Annotated[dict[str, str], Depends(read_form)]

AUTHORIZE = "/oauth/authorize"


def routes(instance: Instance) -> APIRouter:
    """The authorization endpoint (RFC 6749 section 3.1)."""
    router = APIRouter()

    @router.get(AUTHORIZE)
    def ask(request: Request) -> Response:
        session = instance.sessions.of(request) or instance.sessions.begin()
        user = signed_in(instance.store, session)
        if user is None:
            return_to = f"{AUTHORIZE}?{request.url.query}"
            return keep(RedirectResponse(SIGN_IN, 302), instance.sessions.returning(session, return_to))
        fields = {name: value for name, value in request.query_params.items() if name in REQUEST_FIELDS}
        try:
            wanted = checked(instance, fields)
        except OAuthError as error:
            # GitLab's `new` shows errors to the person; only the answer to the form goes to the client.
            return page("An error has occurred", f"<p>{escape(error.description)}</p>")
        if wanted.application.trusted:
            return _redirecting(approve(instance, wanted, user))
        return _question(wanted, fields, user, session)

    @router.post(AUTHORIZE)
    def answer(request: Request, fields: Form) -> Response:
        session = instance.sessions.of(request)
        user = signed_in(instance.store, session)
        if session is None or user is None:
            return RedirectResponse(SIGN_IN, 302)
        if not session.owns(fields.get("authenticity_token", "")):
            return page("The change you requested was rejected.", "", status=422)
        try:
            wanted = checked(instance, fields)
            if fields.get("_method") == "delete":
                raise OAuthError("access_denied")
        except OAuthError as error:
            if not error.redirectable:
                return error_response(error)
            return RedirectResponse(refusal(fields["redirect_uri"], error, fields.get("state", "")), 302)
        return RedirectResponse(approve(instance, wanted, user), 302)

    return router


def _question(wanted: AuthorizationRequest, fields: dict[str, str], user: User, session: Session) -> Response:
    hidden = {"authenticity_token": session.authenticity_token, **fields}
    authorize = f'<button type="submit" data-testid="authorization-button">Authorize {escape(wanted.application.name)}'
    body = (
        f"<p>Signed in as {escape(user.username)}.</p>"
        f"<p>{escape(wanted.application.name)} is requesting access to your account: "
        f"{escape(', '.join(wanted.scopes))}.</p>"
        f"<p>You will be sent to {escape(wanted.redirect_uri)}.</p>"
        + form(AUTHORIZE, hidden, f"{authorize}</button>")
        + form(AUTHORIZE, {**hidden, "_method": "delete"}, '<button type="submit">Cancel</button>')
    )
    return page("Authorize", body)


def _redirecting(address: str) -> Response:
    """GitLab answers for a trusted application with a page that leads on, not with a redirection."""
    head = f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
    return page("Redirecting", f'<p><a href="{escape(address)}">Click here to redirect</a></p>', head=head)
