"""The side door's OAuth part: register applications, sign people in without a browser, and let time pass."""

import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from realm.gitlab.errors import not_found
from realm.gitlab.instance import Instance, now
from realm.gitlab.model import User
from realm.gitlab.oauth_codes import approve, checked
from realm.gitlab.oauth_errors import OAuthError
from realm.gitlab.oauth_model import SCOPES, OAuthApplication
from realm.gitlab.sessions import COOKIE


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NewApplication(_Body):
    """An application to register; `uid` and `secret` are given out if left empty."""

    redirect_uris: list[str] = Field(min_length=1)
    name: str = "ci-bridge"
    scopes: list[str] = Field(default_factory=lambda: ["openid"])
    confidential: bool = True
    trusted: bool = False
    uid: str = ""
    secret: str = ""


class Authorization(_Body):
    """The query of an authorization URL, and who says yes to it."""

    username: str
    query: str


class Ageing(_Body):
    """By how much codes and tokens grow older."""

    seconds: float


def oauth_routes(app: FastAPI, instance: Instance) -> None:
    """Add the routes to the control application."""

    @app.post("/oauth/applications")
    def register(body: NewApplication) -> dict[str, Any]:
        made = _register(instance, body)
        return {"client_id": made.uid, "secret": made.secret}

    @app.get("/oauth/applications/{uid}/live_tokens")
    def live_tokens(uid: str) -> dict[str, int]:
        application = instance.store.applications.find(lambda row: row.uid == uid)
        if application is None:
            raise not_found("Application")
        rows = instance.store.access_tokens.select(lambda row: row.application_id == application.id)
        return {"count": sum(row.accessible(now()) for row in rows)}

    @app.post("/users/{username}/session")
    def session(username: str) -> dict[str, str]:
        return {COOKIE: instance.sessions.begin(_active_user(instance, username).id).key}

    @app.post("/oauth/authorize")
    def authorize(body: Authorization) -> dict[str, str]:
        user = _active_user(instance, body.username)
        try:
            wanted = checked(instance, dict(parse_qsl(body.query, keep_blank_values=True)))
        except OAuthError as error:
            raise ValueError(f"{error.name}: {error.description}") from error
        return {"location": approve(instance, wanted, user)}

    @app.post("/oauth/age")
    def age(body: Ageing) -> dict[str, str]:
        by = timedelta(seconds=body.seconds)
        for table in (instance.store.grants, instance.store.access_tokens):
            for row in table.select():
                table.update(row.id, created_at=row.created_at - by)
        return {}


def _register(instance: Instance, body: NewApplication) -> OAuthApplication:
    if not set(body.scopes) <= set(SCOPES):
        raise ValueError(f"unknown scopes; known: {', '.join(SCOPES)}")
    if not body.confidential and body.secret:
        raise ValueError("a public application has no secret")
    if instance.store.applications.find(lambda row: row.uid == body.uid):
        raise ValueError(f"client id {body.uid!r} is taken")
    secret = (body.secret or f"gloas-{secrets.token_hex(32)}") if body.confidential else ""
    return instance.store.applications.add(
        lambda number: OAuthApplication(
            id=number,
            name=body.name,
            uid=body.uid or secrets.token_hex(32),
            secret=secret,
            redirect_uris=tuple(body.redirect_uris),
            scopes=tuple(body.scopes),
            confidential=body.confidential,
            trusted=body.trusted,
        )
    )


def _active_user(instance: Instance, username: str) -> User:
    user = instance.store.users.find(lambda user: user.username == username)
    if user is None:
        raise not_found("User")
    if user.state != "active":
        raise ValueError(f"{username} is {user.state}")
    return user
