"""REST: jobs of projects and pipelines for people, and `GET /job` for the job itself."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, JSONResponse, Response

from realm.gitlab.api_projects import find_pipeline
from realm.gitlab.auth import current_job, current_user, require_developer, visible_project
from realm.gitlab.entities import job_entity
from realm.gitlab.errors import forbidden, not_found
from realm.gitlab.instance import Instance
from realm.gitlab.model import FINISHED, Job, User
from realm.gitlab.paging import paged
from realm.gitlab.pipelines import cancel_job, retry_job


def routes(instance: Instance) -> APIRouter:
    """All routes of this module."""
    router = APIRouter(prefix="/api/v4")
    _reading_routes(router, instance)
    _content_routes(router, instance)
    _acting_routes(router, instance)
    return router


def _find_job(instance: Instance, user: User, project_id: int, job_id: int) -> Job:
    project = visible_project(instance, user, project_id)
    job = instance.store.jobs.get(job_id)
    if job is None or job.project_id != project.id:
        raise not_found("Job")
    return job


def _reading_routes(router: APIRouter, instance: Instance) -> None:
    @router.get("/job")
    def own_job(request: Request) -> dict[str, Any]:
        return job_entity(instance, current_job(instance, request))

    @router.get("/projects/{project_id}/jobs")
    def project_jobs(request: Request, project_id: int) -> JSONResponse:
        project = visible_project(instance, current_user(instance, request), project_id)
        rows = instance.store.jobs.select(lambda job: job.project_id == project.id)
        return _paged_jobs(request, instance, rows[::-1])

    @router.get("/projects/{project_id}/pipelines/{pipeline_id}/jobs")
    def pipeline_jobs(request: Request, project_id: int, pipeline_id: int) -> JSONResponse:
        user = current_user(instance, request)
        pipeline = find_pipeline(instance, user, project_id, pipeline_id)
        return _paged_jobs(request, instance, instance.store.jobs_of(pipeline.id)[::-1])

    @router.get("/projects/{project_id}/jobs/{job_id}")
    def one_job(request: Request, project_id: int, job_id: int) -> dict[str, Any]:
        return job_entity(instance, _find_job(instance, current_user(instance, request), project_id, job_id))


def _content_routes(router: APIRouter, instance: Instance) -> None:
    @router.get("/projects/{project_id}/jobs/{job_id}/trace")
    def trace(request: Request, project_id: int, job_id: int) -> Response:
        job = _find_job(instance, current_user(instance, request), project_id, job_id)
        return Response(bytes(instance.store.traces.get(job.id, b"")), media_type="text/plain")

    @router.get("/projects/{project_id}/jobs/{job_id}/artifacts")
    def artifacts(request: Request, project_id: int, job_id: int) -> Response:
        job = _find_job(instance, current_user(instance, request), project_id, job_id)
        return archive_response(instance, job)


def _acting_routes(router: APIRouter, instance: Instance) -> None:
    @router.post("/projects/{project_id}/jobs/{job_id}/cancel", status_code=201)
    def cancel(request: Request, project_id: int, job_id: int) -> dict[str, Any]:
        user = current_user(instance, request)
        job = _find_job(instance, user, project_id, job_id)
        require_developer(user, instance.store.projects.one(project_id))
        return job_entity(instance, cancel_job(instance.store, job))

    @router.post("/projects/{project_id}/jobs/{job_id}/retry", status_code=201)
    def retry(request: Request, project_id: int, job_id: int) -> dict[str, Any]:
        user = current_user(instance, request)
        job = _find_job(instance, user, project_id, job_id)
        require_developer(user, instance.store.projects.one(project_id))
        if job.status not in FINISHED:
            raise forbidden("Job is not retryable")
        return job_entity(instance, retry_job(instance.store, job, user))


def archive_response(instance: Instance, job: Job) -> Response:
    """The job's archive as a download.

    Raises:
        ApiError: 404 when the job uploaded none.
    """
    archive = next((artifact for artifact in job.artifacts if artifact.file_type == "archive"), None)
    if archive is None:
        raise not_found("Artifacts")
    path = instance.artifact_file(job, "archive")
    return FileResponse(path, media_type="application/octet-stream", filename=archive.filename)


def _paged_jobs(request: Request, instance: Instance, rows: list[Job]) -> JSONResponse:
    scopes = set(request.query_params.getlist("scope[]") + request.query_params.getlist("scope"))
    shown = [job for job in rows if not scopes or job.status in scopes]
    return paged(request, shown, lambda job: job_entity(instance, job))
