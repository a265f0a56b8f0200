"""OAuth's errors in doorkeeper's words: its config/locales/en.yml, with the statuses of RFC 6749 section 5.2."""

from starlette.responses import JSONResponse

DESCRIPTIONS = {
    "invalid_request": "The request is missing a required parameter, includes an unsupported parameter value, "
    "or is otherwise malformed.",
    "invalid_redirect_uri": "The requested redirect uri is malformed or doesn't match client redirect URI.",
    "access_denied": "The resource owner or authorization server denied the request.",
    "invalid_scope": "The requested scope is invalid, unknown, or malformed.",
    "invalid_code_challenge_method": "The code challenge method must be S256.",
    "unsupported_response_type": "The authorization server does not support this response type.",
    "invalid_client": "Client authentication failed due to unknown client, no client authentication included, "
    "or unsupported authentication method.",
    "invalid_grant": "The provided authorization grant is invalid, expired, revoked, does not match the redirection "
    "URI used in the authorization request, or was issued to another client.",
    "unsupported_grant_type": "The authorization grant type is not supported by the authorization server.",
    "unauthorized_client": "You are not authorized to revoke this token",
    "invalid_token": "The access token is invalid, expired or revoked",
    "insufficient_scope": "Access to this resource requires a scope that the access token does not have.",
}
_STATUS = {"invalid_client": 401, "invalid_token": 401, "unauthorized_client": 403, "insufficient_scope": 403}
NO_STORE = {"Cache-Control": "no-store"}


class OAuthError(Exception):
    """A request that doorkeeper would refuse; `name` is the value of `error`."""

    def __init__(self, name: str, missing_parameter: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.missing_parameter = missing_parameter

    @property
    def description(self) -> str:
        """The value of `error_description`."""
        if self.missing_parameter:
            return f"Missing required parameter: {self.missing_parameter}."
        return DESCRIPTIONS[self.name]

    @property
    def redirectable(self) -> bool:
        """Whether the client may hear of it by redirection: never before client and redirect URI are known good."""
        return self.name not in ("invalid_client", "invalid_redirect_uri") and self.missing_parameter != "client_id"


def missing(parameter: str) -> OAuthError:
    """The invalid_request for a parameter that is not there."""
    return OAuthError("invalid_request", parameter)


def error_response(error: OAuthError) -> JSONResponse:
    """The JSON answer of the token, revocation and userinfo endpoints."""
    status = _STATUS.get(error.name, 400)
    headers = dict(NO_STORE)
    if status == 401:
        headers["WWW-Authenticate"] = (
            f'Bearer realm="Doorkeeper", error="{error.name}", error_description="{error.description}"'
        )
    body = {"error": error.name, "error_description": error.description}
    return JSONResponse(body, status_code=status, headers=headers)
