"""The front channel's rules: is an authorization request good, and the code that answers it."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit

from realm.gitlab.instance import Instance, now
from realm.gitlab.model import User
from realm.gitlab.oauth_errors import OAuthError, missing
from realm.gitlab.oauth_model import SCOPES, AccessGrant, OAuthApplication

REQUEST_FIELDS = (
    *("client_id", "redirect_uri", "response_type", "scope", "state", "nonce"),
    *("code_challenge", "code_challenge_method"),
)
DEFAULT_SCOPE = "api"
"""GitLab's default where a request names no scope."""

_S256 = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True)
class AuthorizationRequest:
    """A request (RFC 6749 section 4.1.1, RFC 7636 section 4.3) that is good, apart from what the person says to it."""

    application: OAuthApplication
    redirect_uri: str
    scopes: tuple[str, ...]
    state: str
    nonce: str
    code_challenge: str
    code_challenge_method: str


def checked(instance: Instance, fields: Mapping[str, str]) -> AuthorizationRequest:
    """The request that these parameters make, checked in doorkeeper's order.

    Stricter than GitLab in one place: doorkeeper does not force PKCE there, and here public applications must bring a
    challenge with S256, so that a client without one shows itself.

    Raises:
        OAuthError: invalid_request, invalid_client, invalid_redirect_uri, unsupported_response_type, invalid_scope or
            invalid_code_challenge_method.
    """
    application = _application(instance, fields.get("client_id", ""))
    redirect_uri = fields.get("redirect_uri", "")
    if redirect_uri not in application.redirect_uris:
        raise OAuthError("invalid_redirect_uri")
    response_type = fields.get("response_type", "")
    if not response_type:
        raise missing("response_type")
    if response_type != "code":
        raise OAuthError("unsupported_response_type")
    scopes = tuple((fields.get("scope") or DEFAULT_SCOPE).split())
    if not scopes or not set(scopes) <= set(SCOPES) & set(application.scopes):
        raise OAuthError("invalid_scope")
    challenge, method = fields.get("code_challenge", ""), fields.get("code_challenge_method", "")
    _check_challenge(application, challenge, method)
    return AuthorizationRequest(
        application, redirect_uri, scopes, fields.get("state", ""), fields.get("nonce", ""), challenge, method
    )


def approve(instance: Instance, request: AuthorizationRequest, user: User) -> str:
    """The address to send the browser to with a fresh code in it (RFC 6749 section 4.1.2)."""
    grant = instance.store.grants.add(
        lambda number: AccessGrant(
            id=number,
            code=secrets.token_hex(32),
            application_id=request.application.id,
            user_id=user.id,
            redirect_uri=request.redirect_uri,
            scopes=request.scopes,
            created_at=now(),
            code_challenge=request.code_challenge,
            code_challenge_method=request.code_challenge_method,
            nonce=request.nonce,
        )
    )
    return redirection(request.redirect_uri, {"code": grant.code, "state": request.state})


def refusal(redirect_uri: str, error: OAuthError, state: str) -> str:
    """The address to send the browser to with an error in it (RFC 6749 section 4.1.2.1)."""
    return redirection(redirect_uri, {"error": error.name, "error_description": error.description, "state": state})


def redirection(redirect_uri: str, answer: Mapping[str, str]) -> str:
    """The redirect URI with the answer's non-empty members added to its query."""
    parts = urlsplit(redirect_uri)
    added = urlencode({name: value for name, value in answer.items() if value})
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, added)))))


def _application(instance: Instance, client_id: str) -> OAuthApplication:
    if not client_id:
        raise missing("client_id")
    found = instance.store.applications.find(lambda application: application.uid == client_id)
    if found is None:
        raise OAuthError("invalid_client")
    return found


def _check_challenge(application: OAuthApplication, challenge: str, method: str) -> None:
    if not challenge:
        if not application.confidential:
            raise missing("code_challenge")
    elif method not in (("S256", "plain") if application.confidential else ("S256",)):
        raise OAuthError("invalid_code_challenge_method")
    elif method == "S256" and _S256.fullmatch(challenge) is None:
        raise OAuthError("invalid_request")
