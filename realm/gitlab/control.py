"""The owner's side door: an HTTP API on a unix socket to seed the instance and to make it misbehave."""

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from realm.gitlab.control_oauth import oauth_routes
from realm.gitlab.entities import job_entity, pipeline_entity, project_entity
from realm.gitlab.errors import ApiError, not_found
from realm.gitlab.instance import Instance, new_token
from realm.gitlab.model import Identity, Job, Project, Runner, User, Variable
from realm.gitlab.pipelines import cancel_job, create_pipeline
from realm.gitlab.tokens import mint


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NewUser(_Body):
    """A user to create; `token` is given out if left empty."""

    username: str
    id: int | None = None
    name: str = ""
    email: str = ""
    token: str = ""
    state: str = "active"
    admin: bool = False
    identities: list[tuple[str, str]] = Field(default_factory=list)
    pass_identities: bool = False
    groups_direct: list[str] | None = None
    password: str = ""


class NewVariable(_Body):
    """A project variable."""

    key: str
    value: str
    file: bool = False
    masked: bool = False
    raw: bool = False
    protected: bool = False


class NewProject(_Body):
    """A project to create with a first commit of `files`; `members` maps username to access level."""

    path: str
    namespace: str
    id: int | None = None
    files: dict[str, str] = Field(default_factory=dict)
    members: dict[str, int] = Field(default_factory=dict)
    visibility: str = "private"
    protected_refs: list[str] = Field(default_factory=list)
    variables: list[NewVariable] = Field(default_factory=list)
    fork_of: int | None = None
    timeout_seconds: int = 3600


class NewRunner(_Body):
    """A runner to register."""

    id: int | None = None
    description: str = "realm-runner"
    tags: list[str] = Field(default_factory=list)
    run_untagged: bool = True
    environment: str = "self-hosted"
    token: str = ""


class NewCommit(_Body):
    """Files to change in one commit on a branch."""

    files: dict[str, str]
    branch: str = "main"
    message: str = "Change"
    username: str = ""


class NewPipeline(_Body):
    """A pipeline started as a user, from a project's ref or from a fork's (a merge request pipeline)."""

    username: str
    ref: str = "main"
    source: str = "web"
    fork_id: int | None = None
    variables: dict[str, str] = Field(default_factory=dict)


class Mint(_Body):
    """Which token of which job to forge, and how."""

    job_id: int
    audience: str | list[str] = "ci-bridge"
    overrides: dict[str, Any] = Field(default_factory=dict)
    remove: list[str] = Field(default_factory=list)
    sign_with: str = "current"
    header: dict[str, Any] = Field(default_factory=dict)


class Misbehave(_Body):
    """A fault kind of realm.gitlab.faults.KINDS, how often, and its details."""

    kind: str
    times: int = 1
    details: dict[str, Any] = Field(default_factory=dict)


def control_app(instance: Instance) -> FastAPI:
    """The application behind the control socket."""
    app = FastAPI(openapi_url=None)

    @app.exception_handler(ApiError)
    def refused(_: Request, error: ApiError) -> JSONResponse:
        return JSONResponse({"message": error.message}, status_code=error.status)

    @app.exception_handler(ValueError)
    def wrong(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"message": str(error)}, status_code=422)

    _seed_routes(app, instance)
    _change_routes(app, instance)
    _job_routes(app, instance)
    _token_routes(app, instance)
    _fault_routes(app, instance)
    oauth_routes(app, instance)
    return app


def _seed_routes(app: FastAPI, instance: Instance) -> None:
    @app.post("/users")
    def create_user(body: NewUser) -> dict[str, Any]:
        fields = body.model_dump() | {
            "name": body.name or body.username.capitalize(),
            "email": body.email or f"{body.username}@{instance.host.split(':')[0]}",
            "token": body.token or new_token("glpat-"),
            "identities": tuple(Identity(*pair) for pair in body.identities),
            "groups_direct": tuple(body.groups_direct) if body.groups_direct is not None else None,
        }
        user = instance.store.users.add(lambda number: User(**fields | {"id": number}), body.id)
        return {"id": user.id, "username": user.username, "token": user.token}

    @app.post("/projects")
    def create_project(body: NewProject) -> dict[str, Any]:
        return project_entity(instance, _create_project(instance, body))

    @app.post("/runners")
    def create_runner(body: NewRunner) -> dict[str, Any]:
        fields = body.model_dump() | {"tags": frozenset(body.tags), "token": body.token or new_token("glrt-")}
        runner = instance.store.runners.add(lambda number: Runner(**fields | {"id": number}), body.id)
        return {"id": runner.id, "token": runner.token}


def _create_project(instance: Instance, body: NewProject) -> Project:
    members = {_user(instance, name).id: level for name, level in body.members.items()}
    project = instance.store.projects.add(
        lambda number: Project(
            id=number,
            path=body.path,
            namespace_id=instance.store.namespace_id(body.namespace),
            namespace_path=body.namespace,
            visibility=body.visibility,
            members=members,
            protected_refs=frozenset(body.protected_refs),
            variables=tuple(Variable(**item.model_dump(), public=False) for item in body.variables),
            forked_from_id=body.fork_of,
            timeout_seconds=body.timeout_seconds,
        ),
        body.id,
    )
    author = ("Realm", f"realm@{instance.host.split(':')[0]}")
    if body.fork_of is None:
        instance.repositories.create(project.id, project.default_branch, body.files, author)
    else:
        instance.repositories.fork(project.id, body.fork_of)
        if body.files:
            instance.repositories.commit(project.id, project.default_branch, body.files, author, "Change the fork")
    return project


def _change_routes(app: FastAPI, instance: Instance) -> None:
    @app.patch("/users/{username}")
    def change_user(username: str, changes: dict[str, Any]) -> dict[str, Any]:
        if not changes.keys() <= {"state", "username", "email", "admin", "pass_identities"}:
            raise ValueError("only state, username, email, admin and pass_identities can be changed")
        user = instance.store.users.update(_user(instance, username).id, **changes)
        return {"id": user.id, "username": user.username, "state": user.state}

    @app.put("/projects/{project_id}/protected_refs")
    def protect(project_id: int, refs: list[str]) -> dict[str, Any]:
        return project_entity(instance, _change_project(instance, project_id, protected_refs=frozenset(refs)))

    @app.put("/projects/{project_id}/members/{username}")
    def member(project_id: int, username: str, level: int) -> dict[str, Any]:
        members = {**_project(instance, project_id).members, _user(instance, username).id: level}
        return project_entity(instance, _change_project(instance, project_id, members=members))

    @app.post("/projects/{project_id}/commits")
    def commit(project_id: int, body: NewCommit) -> dict[str, str]:
        user = _user(instance, body.username) if body.username else None
        author = (user.name, user.email) if user else ("Realm", "realm@localhost")
        project = _project(instance, project_id)
        sha = instance.repositories.commit(project.id, body.branch, body.files, author, body.message)
        return {"sha": sha}


def _job_routes(app: FastAPI, instance: Instance) -> None:
    @app.post("/projects/{project_id}/pipelines")
    def pipeline(project_id: int, body: NewPipeline) -> dict[str, Any]:
        made = create_pipeline(
            instance,
            _project(instance, project_id),
            _user(instance, body.username),
            body.ref,
            source="merge_request_event" if body.fork_id is not None else body.source,
            variables=tuple(Variable(key, value, public=False) for key, value in body.variables.items()),
            fork=_project(instance, body.fork_id) if body.fork_id is not None else None,
        )
        jobs = [job_entity(instance, job) for job in instance.store.jobs_of(made.id)]
        return {**pipeline_entity(instance, made), "jobs": jobs}

    @app.get("/projects/{project_id}/pipelines")
    def pipelines(project_id: int) -> list[dict[str, Any]]:
        rows = instance.store.pipelines.select(lambda row: row.project_id == project_id)
        return [pipeline_entity(instance, row) for row in rows]

    @app.get("/pipelines/{pipeline_id}")
    def one_pipeline(pipeline_id: int) -> dict[str, Any]:
        found = instance.store.pipelines.get(pipeline_id)
        if found is None:
            raise not_found("Pipeline")
        jobs = [job_entity(instance, job) for job in instance.store.jobs_of(found.id)]
        return {**pipeline_entity(instance, found), "jobs": jobs}

    @app.get("/jobs/{job_id}")
    def one_job(job_id: int) -> dict[str, Any]:
        return job_entity(instance, _job(instance, job_id))

    @app.get("/jobs/{job_id}/trace")
    def trace(job_id: int) -> dict[str, str]:
        raw = bytes(instance.store.traces.get(_job(instance, job_id).id, b""))
        return {"trace": raw.decode(errors="replace")}

    @app.post("/jobs/{job_id}/cancel")
    def cancel(job_id: int) -> dict[str, Any]:
        return job_entity(instance, cancel_job(instance.store, _job(instance, job_id)))


def _token_routes(app: FastAPI, instance: Instance) -> None:
    @app.get("/jobs/{job_id}/tokens")
    def tokens(job_id: int) -> dict[str, Any]:
        job = _job(instance, job_id)
        return {"job_token": job.token, "id_tokens": dict(job.id_tokens)}

    @app.post("/mint")
    def mint_token(body: Mint) -> dict[str, str]:
        audience = body.audience if isinstance(body.audience, str) else tuple(body.audience)
        job = _job(instance, body.job_id)
        token = mint(
            instance,
            job,
            audience,
            overrides=body.overrides,
            remove=tuple(body.remove),
            sign_with=body.sign_with,
            header=body.header,
        )
        return {"token": token}

    @app.post("/keys/rotate")
    def rotate() -> dict[str, str]:
        return {"kid": instance.keys.rotate().kid}

    @app.post("/keys/{kid}/withdraw")
    def withdraw(kid: str) -> dict[str, Any]:
        instance.keys.withdraw(kid)
        return instance.keys.jwks()


def _fault_routes(app: FastAPI, instance: Instance) -> None:
    @app.post("/misbehave")
    def misbehave(body: Misbehave) -> dict[str, str]:
        instance.faults.arm(body.kind, body.times, body.details)
        return {"armed": body.kind}

    @app.delete("/misbehave")
    def behave() -> dict[str, str]:
        instance.faults.clear()
        return {"armed": ""}

    @app.get("/requests")
    def requests() -> list[dict[str, Any]]:
        return [asdict(seen) for seen in instance.requests.all()]

    @app.delete("/requests")
    def forget() -> dict[str, str]:
        instance.requests.clear()
        return {}


def _user(instance: Instance, username: str) -> User:
    user = instance.store.users.find(lambda user: user.username == username)
    if user is None:
        raise not_found("User")
    return user


def _project(instance: Instance, project_id: int) -> Project:
    project = instance.store.projects.get(project_id)
    if project is None:
        raise not_found("Project")
    return project


def _change_project(instance: Instance, project_id: int, **changes: Any) -> Project:
    return instance.store.projects.update(_project(instance, project_id).id, **changes)


def _job(instance: Instance, job_id: int) -> Job:
    job = instance.store.jobs.get(job_id)
    if job is None:
        raise not_found("Job")
    return job
