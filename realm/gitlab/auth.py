"""Finds out who asks: a user by personal access token, a running job by its token, a runner by its own."""

import base64
import binascii

from starlette.requests import Request

from realm.gitlab.errors import forbidden, not_found, unauthorized
from realm.gitlab.instance import Instance, now
from realm.gitlab.model import DEVELOPER, LIVE, Job, Project, Runner, User
from realm.gitlab.oauth_errors import OAuthError

BLOCKED = "Your account has been blocked."


def user_of_token(instance: Instance, token: str) -> User | None:
    """The user whose personal access token this is."""
    return instance.store.users.find(lambda user: user.token == token) if token else None


def live_job_of_token(instance: Instance, token: str) -> Job | None:
    """The running (or canceling) job whose CI_JOB_TOKEN this is; an ended job's token finds nothing."""
    if not token:
        return None
    return instance.store.jobs.find(lambda job: job.token == token and job.status in LIVE)


def current_user(instance: Instance, request: Request) -> User:
    """The user behind PRIVATE-TOKEN, `private_token=` or Bearer.

    Raises:
        ApiError: 401 when there is none, 403 when the account is blocked.
        OAuthError: the access token's scopes do not reach this far.
    """
    token = request.headers.get("private-token") or request.query_params.get("private_token") or bearer(request)
    user = user_of_token(instance, token) or _user_of_oauth_token(instance, request)
    if user is None:
        raise unauthorized()
    return allowed(user)


def _user_of_oauth_token(instance: Instance, request: Request) -> User | None:
    """The user whom an application's access token stands for, where its scopes reach as far as this request."""
    token = bearer(request)
    row = instance.store.access_tokens.find(lambda row: bool(token) and row.token == token and row.accessible(now()))
    if row is None:
        return None
    reading = request.method in ("GET", "HEAD")
    about_users = request.url.path.startswith("/api/v4/user")
    enough = {"api", *(("read_api",) if reading else ()), *(("read_user",) if reading and about_users else ())}
    if not enough & set(row.scopes):
        raise OAuthError("insufficient_scope")
    return instance.store.users.one(row.user_id)


def current_job(instance: Instance, request: Request) -> Job:
    """The live job behind JOB-TOKEN, `job_token=` or Bearer.

    Raises:
        ApiError: 401 when the token is unknown or its job has ended, 403 when its user is blocked.
    """
    token = request.headers.get("job-token") or request.query_params.get("job_token") or bearer(request)
    job = live_job_of_token(instance, token)
    if job is None:
        raise unauthorized()
    allowed(instance.store.users.one(job.user_id))
    return job


def runner_of_token(instance: Instance, token: str) -> Runner:
    """The runner whose authentication token this is.

    Raises:
        ApiError: 403, as GitLab answers to unknown runners.
    """
    found = instance.store.runners.find(lambda runner: runner.token == token) if token else None
    if found is None:
        raise forbidden()
    return found


def visible_project(instance: Instance, user: User, project_id: int) -> Project:
    """A project that the user may see.

    Raises:
        ApiError: 404, also for projects that exist but are private to others.
    """
    project = instance.store.projects.get(project_id)
    if project is None or not (user.admin or user.id in project.members or project.visibility != "private"):
        raise not_found("Project")
    return project


def require_developer(user: User, project: Project) -> None:
    """Developers and above may start, cancel and retry.

    Raises:
        ApiError: 403 for everybody else.
    """
    if not user.admin and project.members.get(user.id, 0) < DEVELOPER:
        raise forbidden()


def allowed(user: User) -> User:
    """The same user, unless blocked.

    Raises:
        ApiError: 403 with GitLab's words.
    """
    if user.state != "active":
        raise forbidden(BLOCKED)
    return user


def bearer(request: Request) -> str:
    """The token of an `Authorization: Bearer` header, or nothing."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def basic(request: Request) -> tuple[str, str] | None:
    """User name and password of HTTP Basic authentication (RFC 7617)."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
