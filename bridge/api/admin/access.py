"""API tokens for programs, and people's sessions. The secret of a token is answered once, and kept nowhere."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from bridge.access import MAX_TOKEN_LIFE, SessionEpoch
from bridge.api.admin.entry import CHANGES, PREFIX
from bridge.api.callers import Person, Presenter
from bridge.api.idempotency import no_idempotency_key
from bridge.api.values import Reference, Strict, Text
from bridge.policy.roles import Role

router = APIRouter(prefix=PREFIX)


class NewToken(Strict):
    """A token for some of one's own roles."""

    scopes: Annotated[list[Annotated[Role, Field(strict=False)]], Field(min_length=1, max_length=len(Role))]
    days: Annotated[int, Field(ge=1, le=MAX_TOKEN_LIFE.days)]
    note: Annotated[Text, Field(min_length=1, max_length=200)]


class Token(BaseModel):
    """A token, less its secret."""

    token_id: str
    principal: str
    scopes: list[Role]
    note: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    """The hour."""


class OneToken(BaseModel):
    """A token as it stands."""

    token: Token


class CreatedToken(OneToken):
    """A new token, with the secret that nobody shows again."""

    secret: str


class Tokens(BaseModel):
    """All that the caller may see."""

    tokens: list[Token]


class Nothing(Strict):
    """An empty object."""


class NewSession(BaseModel):
    """A session that has begun; what opens it is in the cookie and nowhere else."""

    session_id: str
    principal: str
    ends_at: datetime


class Whose(Strict):
    """Whose sessions; left out, one's own."""

    principal: Annotated[Text, Field(max_length=256)] | None = None


class ClosedSessions(BaseModel):
    """All sessions that began before are over."""

    closed: SessionEpoch


@router.get("/api-tokens", response_model=Tokens, operation_id="list_api_tokens", tags=["api-tokens"])
async def tokens(person: Person) -> Any:
    """List one's own tokens; operators and auditors see everybody's."""
    return await person.ask("api_token_list")


@router.post(
    "/api-tokens",
    status_code=201,
    response_model=CreatedToken,
    operation_id="create_api_token",
    tags=["api-tokens"],
    dependencies=[*CHANGES, Depends(no_idempotency_key)],
)
async def create(body: NewToken, person: Person) -> Any:
    """Make a token for oneself, as a person; it never has more roles than its owner has at that moment."""
    scopes = [scope.value for scope in body.scopes]
    return await person.ask("api_token_create", scopes=scopes, days=body.days, note=body.note)


@router.delete(
    "/api-tokens/{token_id}",
    response_model=OneToken,
    operation_id="revoke_api_token",
    tags=["api-tokens"],
    dependencies=CHANGES,
)
async def revoke(token_id: Annotated[Reference, Path()], person: Person) -> Any:
    """End a token: one's own, or any as an operator; again is harmless."""
    return await person.ask("api_token_revoke", token_id=token_id)


@router.post(
    "/sessions",
    status_code=201,
    response_model=NewSession,
    operation_id="open_session",
    tags=["sessions"],
    dependencies=[*CHANGES, Depends(no_idempotency_key)],
)
async def open_session(body: Nothing, person: Presenter) -> Any:
    """Begin a session for a browser, by a ticket or a provider's token: in a cookie that no script reads."""
    return await person.begin_session()


@router.post(
    "/sessions/close",
    response_model=ClosedSessions,
    operation_id="close_sessions",
    tags=["sessions"],
    dependencies=CHANGES,
)
async def close_sessions(body: Whose, person: Person) -> Any:
    """End all of one's own sessions, or as an operator all of somebody's."""
    return await person.ask("session_close_all", principal=body.principal)
