"""The records of OAuth 2.0 in the stand-in: registered applications, authorization codes and access tokens."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

CODE_LIFE = timedelta(minutes=10)
"""Doorkeeper's default for authorization codes, which GitLab keeps."""

TOKEN_LIFE = timedelta(hours=2)
"""GitLab's config/initializers/doorkeeper.rb: access_token_expires_in."""

SCOPES = ("api", "read_api", "read_user", "openid", "profile", "email")
"""The scopes of GitLab that mean something here."""


@dataclass(frozen=True)
class OAuthApplication:
    """A registered client; `uid` is its client id. A trusted one is not asked about, and a public one has no secret."""

    id: int
    name: str
    uid: str
    secret: str = field(repr=False)
    redirect_uris: tuple[str, ...]
    scopes: tuple[str, ...]
    confidential: bool = True
    trusted: bool = False


@dataclass(frozen=True)
class AccessGrant:
    """An authorization code: what a person let an application have, to be fetched once."""

    id: int
    code: str = field(repr=False)
    application_id: int
    user_id: int
    redirect_uri: str
    scopes: tuple[str, ...]
    created_at: datetime
    code_challenge: str = ""
    code_challenge_method: str = ""
    nonce: str = ""
    used: bool = False

    def accessible(self, moment: datetime) -> bool:
        """Whether it is unused and no older than CODE_LIFE."""
        return not self.used and moment < self.created_at + CODE_LIFE


@dataclass(frozen=True)
class AccessToken:
    """An access token and the refresh token beside it, which end together when revoked."""

    id: int
    token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    application_id: int
    user_id: int
    scopes: tuple[str, ...]
    created_at: datetime
    revoked: bool = False

    def accessible(self, moment: datetime) -> bool:
        """Whether it is neither revoked nor older than TOKEN_LIFE."""
        return not self.revoked and moment < self.created_at + TOKEN_LIFE
