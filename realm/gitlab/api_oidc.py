"""OpenID Connect discovery and the JSON Web Key Set."""

from typing import Any

from fastapi import APIRouter

from realm.gitlab.instance import Instance
from realm.gitlab.oauth_model import SCOPES


def routes(instance: Instance) -> APIRouter:
    """The two public endpoints that verifiers of id_tokens fetch."""
    router = APIRouter()

    @router.get("/.well-known/openid-configuration")
    def discovery() -> dict[str, Any]:
        url = instance.external_url
        return {
            "issuer": url,
            "authorization_endpoint": f"{url}/oauth/authorize",
            "token_endpoint": f"{url}/oauth/token",
            "revocation_endpoint": f"{url}/oauth/revoke",
            "userinfo_endpoint": f"{url}/oauth/userinfo",
            "jwks_uri": f"{url}/oauth/discovery/keys",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query", "fragment"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claim_types_supported": ["normal"],
            "claims_supported": [
                *("iss", "sub", "aud", "exp", "iat", "name", "nickname", "preferred_username"),
                *("email", "email_verified", "profile", "groups", "groups_direct"),
            ],
            "code_challenge_methods_supported": ["plain", "S256"],
        }

    @router.get("/oauth/discovery/keys")
    def keys() -> dict[str, Any]:
        return instance.keys.jwks()

    return router
