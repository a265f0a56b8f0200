"""The back channel's rules: a client shows itself, turns a code into a token, and gives the token back."""

import base64
import hashlib
import secrets
from collections.abc import Mapping

from starlette.requests import Request

from realm.gitlab.auth import basic
from realm.gitlab.instance import Instance, now
from realm.gitlab.oauth_errors import OAuthError, missing
from realm.gitlab.oauth_model import AccessGrant, AccessToken, OAuthApplication


def client_of(instance: Instance, request: Request, fields: Mapping[str, str]) -> OAuthApplication:
    """The application that asks, by HTTP Basic or by form fields; public ones have only their name (RFC 6749 2.3).

    Raises:
        OAuthError: invalid_client.
    """
    uid, secret = basic(request) or (fields.get("client_id", ""), fields.get("client_secret", ""))
    found = instance.store.applications.find(lambda application: application.uid == uid)
    if found is None:
        raise OAuthError("invalid_client")
    if (found.confidential or secret) and not secrets.compare_digest(found.secret.encode(), secret.encode()):
        raise OAuthError("invalid_client")
    return found


def redeem_code(instance: Instance, client: OAuthApplication, fields: Mapping[str, str]) -> tuple[AccessToken, str]:
    """A token for an authorization code, and the nonce of its request (RFC 6749 section 4.1.3, RFC 7636 section 4.6).

    Raises:
        OAuthError: invalid_request for missing parameters, else invalid_grant.
    """
    store = instance.store
    code, redirect_uri = fields.get("code", ""), fields.get("redirect_uri", "")
    verifier = fields.get("code_verifier", "")
    # Under the lock, so that of two presenters of one code only one gets a token.
    with store.lock:
        grant = store.grants.find(lambda grant: secrets.compare_digest(grant.code.encode(), code.encode()))
        for name, value in (
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier or grant is None or not grant.code_challenge),
        ):
            if not value:
                raise missing(name)
        if grant is None or grant.application_id != client.id or not grant.accessible(now()):
            raise OAuthError("invalid_grant")
        if grant.redirect_uri != redirect_uri or not _verifies(grant, verifier):
            raise OAuthError("invalid_grant")
        store.grants.update(grant.id, used=True)
        return _new_token(instance, client, grant.user_id, grant.scopes), grant.nonce


def refresh(instance: Instance, client: OAuthApplication, fields: Mapping[str, str]) -> AccessToken:
    """A new token for a refresh token, which is used up by it (RFC 6749 section 6).

    Raises:
        OAuthError: invalid_request or invalid_grant.
    """
    store = instance.store
    wanted = fields.get("refresh_token", "")
    if not wanted:
        raise missing("refresh_token")
    with store.lock:
        old = store.access_tokens.find(lambda row: row.refresh_token == wanted)
        if old is None or old.application_id != client.id or old.revoked:
            raise OAuthError("invalid_grant")
        store.access_tokens.update(old.id, revoked=True)
        return _new_token(instance, client, old.user_id, old.scopes)


def revoke(instance: Instance, client: OAuthApplication, token: str) -> None:
    """End a token and the refresh token beside it (RFC 7009 section 2); one that nobody knows is no error.

    Raises:
        OAuthError: unauthorized_client, for a token of another application.
    """
    row = instance.store.access_tokens.find(lambda row: bool(token) and token in (row.token, row.refresh_token))
    if row is None:
        return
    if row.application_id != client.id:
        raise OAuthError("unauthorized_client")
    instance.store.access_tokens.update(row.id, revoked=True)


def accepted(instance: Instance, token: str, scopes: frozenset[str]) -> AccessToken:
    """The live access token with at least one of these scopes, of a user who is active.

    Raises:
        OAuthError: invalid_token or insufficient_scope (RFC 6750 section 3.1).
    """
    row = instance.store.access_tokens.find(lambda row: bool(token) and row.token == token)
    if row is None or not row.accessible(now()) or instance.store.users.one(row.user_id).state != "active":
        raise OAuthError("invalid_token")
    if not scopes & set(row.scopes):
        raise OAuthError("insufficient_scope")
    return row


def _new_token(instance: Instance, client: OAuthApplication, user_id: int, scopes: tuple[str, ...]) -> AccessToken:
    return instance.store.access_tokens.add(
        lambda number: AccessToken(
            id=number,
            token=secrets.token_hex(32),
            refresh_token=secrets.token_hex(32),
            application_id=client.id,
            user_id=user_id,
            scopes=scopes,
            created_at=now(),
        )
    )


def _verifies(grant: AccessGrant, verifier: str) -> bool:
    """Whether the verifier is that of the grant's challenge; one that nobody asked for is refused as well."""
    if not grant.code_challenge:
        return not verifier
    shown = verifier
    if grant.code_challenge_method == "S256":
        digest = hashlib.sha256(verifier.encode()).digest()
        shown = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return secrets.compare_digest(grant.code_challenge.encode(), shown.encode())
