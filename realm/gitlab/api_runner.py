"""The coordinator API that a GitLab Runner talks to: verify, request, trace, update, artifacts."""

import re
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from realm.gitlab.api_jobs import archive_response
from realm.gitlab.api_projects import json_object
from realm.gitlab.auth import live_job_of_token, runner_of_token
from realm.gitlab.errors import ApiError, forbidden, not_found
from realm.gitlab.instance import Instance
from realm.gitlab.model import FINISHED, LIVE, Artifact, Job, JobStatus
from realm.gitlab.multipart import MAX_BODY_BYTES, parse_multipart
from realm.gitlab.payload import job_payload
from realm.gitlab.pipelines import dependencies_of, finish_job, take_job

MAX_TRACE_BYTES = 100 * 1024 * 1024


def routes(instance: Instance) -> APIRouter:
    """All routes of this module."""
    router = APIRouter(prefix="/api/v4")
    _runner_routes(router, instance)
    _job_routes(router, instance)
    _artifact_routes(router, instance)
    return router


def _runner_routes(router: APIRouter, instance: Instance) -> None:
    @router.post("/runners/verify")
    async def verify(request: Request) -> dict[str, Any]:
        runner = runner_of_token(instance, (await json_object(request)).get("token", ""))
        return {"id": runner.id, "token": runner.token, "token_expires_at": None}

    @router.post("/jobs/request")
    async def request_job(request: Request) -> Response:
        body = await json_object(request)
        return await run_in_threadpool(_next_job, instance, body)


def _next_job(instance: Instance, body: dict[str, Any]) -> Response:
    runner = runner_of_token(instance, body.get("token", ""))
    features = (body.get("info") or {}).get("features") or {}
    job = None if runner.paused else take_job(instance, runner, features)
    if job is None:
        return Response(status_code=204, headers={"X-GitLab-Last-Update": "0"})
    return JSONResponse(job_payload(instance, job), status_code=201)


def _job_routes(router: APIRouter, instance: Instance) -> None:
    @router.patch("/jobs/{job_id}/trace")
    async def patch_trace(request: Request, job_id: int) -> Response:
        job = _running_job(instance, request, job_id, request.headers.get("job-token", ""))
        return _append(instance, job, request.headers.get("content-range"), await request.body())

    @router.put("/jobs/{job_id}")
    async def update(request: Request, job_id: int) -> Response:
        body = await json_object(request)
        token = request.headers.get("job-token") or body.get("token", "")
        job = _running_job(instance, request, job_id, token)
        return await run_in_threadpool(_update, instance, job, body)


def _append(instance: Instance, job: Job, content_range: str | None, data: bytes) -> Response:
    matched = re.fullmatch(r"(\d+)-(\d+)", content_range or "")
    if matched is None:
        raise ApiError(400, "400 Missing header Content-Range")
    with instance.store.lock:
        trace = instance.store.traces.setdefault(job.id, bytearray())
        if int(matched[1]) != len(trace):
            # A gap or an overlap: tell the runner where to go on.
            raise ApiError(416, "416 Range Not Satisfiable", {"Range": f"0-{len(trace)}"})
        if len(trace) + len(data) > MAX_TRACE_BYTES:
            raise forbidden()
        trace.extend(data)
        headers = {**_progress(instance, job), "Range": f"0-{len(trace)}"}
    return Response("202", status_code=202, media_type="text/plain", headers=headers)


def _update(instance: Instance, job: Job, body: dict[str, Any]) -> Response:
    state = body.get("state")
    if state not in ("running", "success", "failed"):
        raise ApiError(400, "400 Bad request - Unknown job state")
    received = len(instance.store.traces.get(job.id, b""))
    announced = (body.get("output") or {}).get("bytesize") or 0
    if state == "running" or announced > received:
        status = 200 if state == "running" else 202
    else:
        job = finish_job(instance.store, job, state, body.get("exit_code"), body.get("failure_reason"))
        status = 200
    return Response(str(status), status_code=status, media_type="text/plain", headers=_progress(instance, job))


def _progress(instance: Instance, job: Job) -> dict[str, str]:
    return {"Job-Status": job.status, "X-GitLab-Trace-Update-Interval": str(instance.trace_update_seconds)}


def _running_job(instance: Instance, request: Request, job_id: int, token: str) -> Job:
    """The job with this id and token while it runs; 403 with its state after it ended, 404 if there is none."""
    job = instance.store.jobs.get(job_id)
    if job is None:
        raise not_found("Job")
    supplied = token or request.query_params.get("token", "")
    if supplied != job.token:
        raise forbidden()
    if job.status not in LIVE:
        raise forbidden("Job is not running", {"Job-Status": job.status})
    return job


def _artifact_routes(router: APIRouter, instance: Instance) -> None:
    @router.post("/jobs/{job_id}/artifacts/authorize")
    def authorize(request: Request, job_id: int) -> dict[str, Any]:
        _running_job(instance, request, job_id, request.headers.get("job-token", ""))
        return {"MaximumSize": MAX_BODY_BYTES}

    @router.post("/jobs/{job_id}/artifacts")
    async def upload(request: Request, job_id: int) -> Response:
        job = _running_job(instance, request, job_id, request.headers.get("job-token", ""))
        if int(request.headers.get("content-length", "0")) > MAX_BODY_BYTES:
            raise ApiError(413, "413 Request Entity Too Large")
        body = bytearray()
        async for chunk in request.stream():
            body.extend(chunk)
            if len(body) > MAX_BODY_BYTES:
                raise ApiError(413, "413 Request Entity Too Large")
        return await run_in_threadpool(_keep, instance, job, request, bytes(body))

    @router.get("/jobs/{job_id}/artifacts")
    def download(request: Request, job_id: int) -> Response:
        token = request.headers.get("job-token") or request.query_params.get("token", "")
        return archive_response(instance, _readable_job(instance, job_id, token))


def _keep(instance: Instance, job: Job, request: Request, body: bytes) -> Response:
    file = parse_multipart(request.headers.get("content-type", ""), body).get("file")
    if file is None or file.filename is None:
        raise ApiError(400, "file is invalid")
    kind = request.query_params.get("artifact_type", "archive")
    if not re.fullmatch(r"[a-z_]{1,40}", kind):
        raise ApiError(400, "artifact_type does not have a valid value")
    with instance.store.lock:
        if any(artifact.file_type == kind for artifact in job.artifacts):
            raise ApiError(400, "400 Bad request - another artifact of the same type already exists")
        instance.artifact_file(job, kind).write_bytes(file.content)
        form = request.query_params.get("artifact_format", "zip")
        kept = Artifact(file.filename, len(file.content), kind, form)
        instance.store.jobs.update(job.id, artifacts=(*job.artifacts, kept))
    return Response("201", status_code=201, media_type="text/plain")


def _readable_job(instance: Instance, job_id: int, token: str) -> Job:
    """A job whose archive the token opens: its own, or that of a running job that depends on it."""
    job = instance.store.jobs.get(job_id)
    if job is None:
        raise not_found("Job")
    if token == job.token and job.status not in (*FINISHED, JobStatus.CREATED):
        return job
    running = live_job_of_token(instance, token)
    if running is None:
        raise ApiError(401, "401 Unauthorized")
    if job.id != running.id and job.id not in {other.id for other in dependencies_of(instance.store, running)}:
        raise forbidden()
    return job
