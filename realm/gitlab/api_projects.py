"""REST: users, projects and pipelines, for personal access tokens."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from realm.gitlab.auth import current_user, require_developer, visible_project
from realm.gitlab.entities import pipeline_basic, pipeline_entity, project_entity, user_basic, user_full
from realm.gitlab.errors import ApiError, not_found
from realm.gitlab.instance import Instance
from realm.gitlab.model import Pipeline, User, Variable
from realm.gitlab.paging import paged
from realm.gitlab.pipelines import cancel_job, create_pipeline


def routes(instance: Instance) -> APIRouter:
    """All routes of this module."""
    router = APIRouter(prefix="/api/v4")
    _user_routes(router, instance)
    _project_routes(router, instance)
    _pipeline_routes(router, instance)
    return router


def find_pipeline(instance: Instance, user: User, project_id: int, pipeline_id: int) -> Pipeline:
    """A pipeline of a project that the user may see, or 404."""
    project = visible_project(instance, user, project_id)
    pipeline = instance.store.pipelines.get(pipeline_id)
    if pipeline is None or pipeline.project_id != project.id:
        raise not_found("Pipeline")
    return pipeline


def _user_routes(router: APIRouter, instance: Instance) -> None:
    @router.get("/version")
    def version(request: Request) -> dict[str, Any]:
        current_user(instance, request)
        return {"version": "18.10.0-standin", "revision": "standin", "enterprise": False}

    @router.get("/user")
    def me(request: Request) -> dict[str, Any]:
        user = current_user(instance, request)
        return user_full(instance, user, user)

    @router.get("/users")
    def users(request: Request) -> JSONResponse:
        viewer = current_user(instance, request)
        name = request.query_params.get("username", "").lower()
        rows = instance.store.users.select(lambda user: not name or user.username.lower() == name)
        return paged(request, rows, lambda user: user_full(instance, user, viewer))

    @router.get("/users/{user_id}")
    def one_user(request: Request, user_id: int) -> dict[str, Any]:
        viewer = current_user(instance, request)
        user = instance.store.users.get(user_id)
        if user is None:
            raise not_found("User")
        return user_full(instance, user, viewer) if viewer.admin else user_basic(instance, user)


def _project_routes(router: APIRouter, instance: Instance) -> None:
    @router.get("/projects")
    def projects(request: Request) -> JSONResponse:
        user = current_user(instance, request)
        rows = instance.store.projects.select(lambda p: user.admin or user.id in p.members or p.visibility != "private")
        return paged(request, rows[::-1], lambda project: project_entity(instance, project))

    @router.get("/projects/{project_id}")
    def one_project(request: Request, project_id: int) -> dict[str, Any]:
        return project_entity(instance, visible_project(instance, current_user(instance, request), project_id))


def _pipeline_routes(router: APIRouter, instance: Instance) -> None:
    @router.post("/projects/{project_id}/pipeline", status_code=201)
    async def create(request: Request, project_id: int) -> dict[str, Any]:
        body = await json_object(request)
        return await run_in_threadpool(_create, instance, request, project_id, body)

    @router.get("/projects/{project_id}/pipelines")
    def pipelines(request: Request, project_id: int) -> JSONResponse:
        project = visible_project(instance, current_user(instance, request), project_id)
        rows = instance.store.pipelines.select(lambda pipeline: pipeline.project_id == project.id)
        ref = request.query_params.get("ref")
        shown = [row for row in rows if ref in (None, row.ref)]
        return paged(request, shown[::-1], lambda pipeline: pipeline_basic(instance, pipeline))

    @router.get("/projects/{project_id}/pipelines/{pipeline_id}")
    def one_pipeline(request: Request, project_id: int, pipeline_id: int) -> dict[str, Any]:
        user = current_user(instance, request)
        return pipeline_entity(instance, find_pipeline(instance, user, project_id, pipeline_id))

    @router.post("/projects/{project_id}/pipelines/{pipeline_id}/cancel")
    def cancel(request: Request, project_id: int, pipeline_id: int) -> dict[str, Any]:
        user = current_user(instance, request)
        pipeline = find_pipeline(instance, user, project_id, pipeline_id)
        require_developer(user, instance.store.projects.one(project_id))
        for job in reversed(instance.store.jobs_of(pipeline.id)):
            cancel_job(instance.store, job)
        return pipeline_entity(instance, pipeline)


async def json_object(request: Request) -> dict[str, Any]:
    """The request's JSON object, or an empty one for an empty body.

    Raises:
        ApiError: 400 for anything else.
    """
    raw = await request.body()
    if not raw:
        return {}
    try:
        body = await request.json()
    except ValueError as error:
        raise ApiError(400, "400 Bad request - the body is not JSON") from error
    if not isinstance(body, dict):
        raise ApiError(400, "400 Bad request - the body is not a JSON object")
    return body


def _create(instance: Instance, request: Request, project_id: int, body: dict[str, Any]) -> dict[str, Any]:
    user = current_user(instance, request)
    project = visible_project(instance, user, project_id)
    require_developer(user, project)
    ref = body.get("ref") or request.query_params.get("ref")
    if not ref:
        raise ApiError(400, "ref is missing")
    variables = tuple(
        Variable(item["key"], str(item["value"]), public=False, file=item.get("variable_type") == "file")
        for item in body.get("variables", [])
    )
    pipeline = create_pipeline(instance, project, user, str(ref), source="api", variables=variables)
    return pipeline_entity(instance, pipeline)
