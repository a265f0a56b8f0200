"""Git over smart HTTP: authenticates, then hands the request to `git http-backend` (git-http-backend(1))."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import IO

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from realm.gitlab.auth import allowed, basic, bearer, live_job_of_token, user_of_token
from realm.gitlab.errors import ApiError, forbidden
from realm.gitlab.instance import Instance
from realm.gitlab.model import DEVELOPER, Project, User
from realm.gitlab.pipelines import CONFIG_FILE, create_pipeline
from realm.gitlab.repositories import clean_environment

CI_USER = "gitlab-ci-token"
_CHUNK = 64 * 1024
_PATH = re.compile(r"^(?P<project>.+)\.git/(?P<rest>info/refs|git-upload-pack|git-receive-pack)$")


def routes(instance: Instance) -> APIRouter:
    """The catch-all route for `/<group>/<project>.git/...`; include it last."""
    router = APIRouter()

    @router.api_route("/{path:path}", methods=["GET", "POST"])
    async def git(request: Request, path: str) -> Response:
        matched = _PATH.match(path)
        if matched is None:
            raise ApiError(404, "404 Not Found")
        # A real file, because the child process reads it.
        with tempfile.TemporaryFile() as body:
            async for chunk in request.stream():
                body.write(chunk)
            return await run_in_threadpool(_serve, instance, request, matched["project"], matched["rest"], body)

    return router


def _serve(instance: Instance, request: Request, project_path: str, rest: str, body: IO[bytes]) -> Response:
    writing = "git-receive-pack" in (rest, request.query_params.get("service"))
    user, is_job = _authenticate(instance, request)
    project = _project(instance, user, project_path)
    if writing and (is_job or (project.members.get(user.id, 0) < DEVELOPER and not user.admin)):
        raise forbidden("You are not allowed to push code to this project.")
    pushing = rest == "git-receive-pack"
    before = instance.repositories.heads(project.id) if pushing else {}
    response = _backend(instance, request, project, user, rest, body)
    if pushing:
        _pipelines_for_push(instance, project, user, before)
    return response


def _authenticate(instance: Instance, request: Request) -> tuple[User, bool]:
    """(user, whether a job speaks for them), or 401 with a Basic challenge."""
    name, password = basic(request) or ("", bearer(request))
    if name == CI_USER:
        job = live_job_of_token(instance, password)
        user = instance.store.users.one(job.user_id) if job else None
    else:
        user = user_of_token(instance, password)
    if user is None:
        challenge = {"WWW-Authenticate": 'Basic realm="GitLab"'}
        raise ApiError(401, "HTTP Basic: Access denied. Use a token as password.", challenge)
    return allowed(user), name == CI_USER


def _project(instance: Instance, user: User, path: str) -> Project:
    project = instance.store.project_by_path(path)
    if project is None or not (user.admin or user.id in project.members or project.visibility != "private"):
        raise ApiError(
            404, "The project you were looking for could not be found or you don't have permission to view it."
        )
    return project


def _backend(
    instance: Instance, request: Request, project: Project, user: User, rest: str, body: IO[bytes]
) -> Response:
    length = body.tell()
    body.seek(0)
    process = subprocess.Popen(
        ["git", "http-backend"],
        env={
            **clean_environment(),
            "GIT_PROJECT_ROOT": str(instance.repositories.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{project.id}.git/{rest}",
            "QUERY_STRING": request.url.query,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            # Set for authenticated users only; it is what enables receive-pack.
            "REMOTE_USER": user.username,
        },
        stdin=body,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if process.stdout is None:
        raise ApiError(500, "500 Internal Server Error")
    status, headers = _cgi_headers(process.stdout)
    if rest == "git-receive-pack":
        # Read to the end first: the refs must have moved before anybody looks at them.
        return Response(b"".join(_stream(process, process.stdout)), status_code=status, headers=headers)
    return StreamingResponse(_stream(process, process.stdout), status_code=status, headers=headers)


def _cgi_headers(stdout: IO[bytes]) -> tuple[int, dict[str, str]]:
    """The status and headers of a CGI response (RFC 3875 section 6)."""
    status, headers = 200, {}
    while line := stdout.readline().decode().strip():
        name, _, value = line.partition(":")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value.strip()
    return status, headers


def _stream(process: subprocess.Popen[bytes], stdout: IO[bytes]) -> Iterator[bytes]:
    try:
        while chunk := stdout.read(_CHUNK):
            yield chunk
    finally:
        stdout.close()
        process.wait()


def _pipelines_for_push(instance: Instance, project: Project, user: User, before: dict[str, str]) -> None:
    """A pipeline for every branch or tag that the push moved and that has a CI file, unless it says [ci skip]."""
    for name, sha in instance.repositories.heads(project.id).items():
        short = name.split("/", 2)[2]
        if before.get(name) == sha or instance.repositories.read(project.id, sha, CONFIG_FILE) is None:
            continue
        message = instance.repositories.commit_info(project.id, sha).message.lower()
        if "[ci skip]" in message or "[skip ci]" in message:
            continue
        try:
            create_pipeline(instance, project, user, short, source="push")
        except ApiError:
            # GitLab records a failed pipeline for a bad file; the push itself has succeeded.
            continue
