"""OAuth's back channel: `/oauth/token`, `/oauth/revoke` and `/oauth/userinfo`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from realm.gitlab.auth import bearer
from realm.gitlab.forms import read_form
from realm.gitlab.instance import Instance, now
from realm.gitlab.model import User
from realm.gitlab.oauth_errors import NO_STORE, OAuthError, missing
from realm.gitlab.oauth_model import TOKEN_LIFE, AccessToken
from realm.gitlab.oauth_tokens import accepted, client_of, redeem_code, refresh, revoke
from realm.gitlab.tokens import compact

Form = Annotated[dict[str, str], Depends(read_form)]

ID_TOKEN_SECONDS = 120
"""Doorkeeper's default life of the id_token beside an access token."""


def routes(instance: Instance) -> APIRouter:
    """The endpoints that an OAuth client calls; OAuthError is answered by the application."""
    router = APIRouter()

    @router.post("/oauth/token")
    def token(request: Request, fields: Form) -> Response:
        grant_type = fields.get("grant_type", "")
        if not grant_type:
            raise missing("grant_type")
        if grant_type not in ("authorization_code", "refresh_token"):
            raise OAuthError("unsupported_grant_type")
        client = client_of(instance, request, fields)
        if grant_type == "refresh_token":
            made, nonce = refresh(instance, client, fields), ""
        else:
            made, nonce = redeem_code(instance, client, fields)
        return JSONResponse(_token_body(instance, made, client.uid, nonce), headers=NO_STORE)

    @router.post("/oauth/revoke")
    def revocation(request: Request, fields: Form) -> dict[str, Any]:
        revoke(instance, client_of(instance, request, fields), fields.get("token", ""))
        return {}

    @router.api_route("/oauth/userinfo", methods=["GET", "POST"])
    def userinfo(request: Request) -> dict[str, Any]:
        row = accepted(instance, bearer(request), frozenset({"openid"}))
        return _userinfo(instance, instance.store.users.one(row.user_id), row.scopes)

    return router


def _token_body(instance: Instance, made: AccessToken, client_id: str, nonce: str) -> dict[str, Any]:
    """RFC 6749 section 5.1, with doorkeeper's `created_at` and OpenID Connect's `id_token`."""
    body: dict[str, Any] = {
        "access_token": made.token,
        "token_type": "Bearer",
        "expires_in": int(TOKEN_LIFE.total_seconds()),
        "refresh_token": made.refresh_token,
        "scope": " ".join(made.scopes),
        "created_at": int(made.created_at.timestamp()),
    }
    user = instance.store.users.one(made.user_id)
    if "openid" in made.scopes and user.state == "active":
        body["id_token"] = _id_token(instance, user, client_id, made.scopes, nonce)
    return body


def _id_token(instance: Instance, user: User, client_id: str, scopes: tuple[str, ...], nonce: str) -> str:
    """OpenID Connect Core 1.0 section 2; `aud` is the client id, never a bridge's audience."""
    issued = int(now().timestamp())
    claims: dict[str, Any] = {
        "iss": instance.external_url,
        "sub": str(user.id),
        "aud": client_id,
        "exp": issued + ID_TOKEN_SECONDS,
        "iat": issued,
        "groups_direct": list(user.groups_direct or ()),
        **_email(user, scopes),
    }
    if nonce:
        claims["nonce"] = nonce
    key = instance.keys.current
    return compact({"typ": "JWT", "alg": "RS256", "kid": key.kid}, claims, key)


def _userinfo(instance: Instance, user: User, scopes: tuple[str, ...]) -> dict[str, Any]:
    """GitLab's config/initializers/doorkeeper_openid_connect.rb, less the pictures and `sub_legacy`."""
    return {
        "sub": str(user.id),
        "name": user.name,
        "nickname": user.username,
        "preferred_username": user.username,
        **_email(user, scopes),
        "profile": f"{instance.external_url}/{user.username}",
        "groups": list(user.groups_direct or ()),
    }


def _email(user: User, scopes: tuple[str, ...]) -> dict[str, Any]:
    return {"email": user.email, "email_verified": True} if "email" in scopes else {}
