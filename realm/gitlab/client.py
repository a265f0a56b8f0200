"""A typed client of the control socket, for the demo and the tests."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

T = TypeVar("T")
FINISHED = frozenset({"success", "failed", "canceled", "skipped"})


class ControlError(RuntimeError):
    """The control API refused; the text is its reason."""


@dataclass(frozen=True)
class UserHandle:
    """A created user and their personal access token."""

    id: int
    username: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class RunnerHandle:
    """A registered runner and its authentication token."""

    id: int
    token: str = field(repr=False)


@dataclass(frozen=True)
class ApplicationHandle:
    """A registered OAuth application; `secret` is empty for a public one."""

    client_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class ProjectHandle:
    """A created project; `clone_url` needs a token as password."""

    id: int
    full_path: str
    clone_url: str


@dataclass(frozen=True)
class JobHandle:
    """A job as it was when asked."""

    id: int
    name: str
    status: str
    exit_code: int | None = None
    failure_reason: str | None = None
    allow_failure: bool = False


@dataclass(frozen=True)
class PipelineHandle:
    """A pipeline and its jobs as they were when asked."""

    id: int
    status: str
    sha: str
    jobs: tuple[JobHandle, ...]

    def job(self, name: str) -> JobHandle:
        """The newest job of this name."""
        return max((job for job in self.jobs if job.name == name), key=lambda job: job.id)


@dataclass(frozen=True)
class JobTokens:
    """The secrets of a job: its CI_JOB_TOKEN and its id_tokens by variable name."""

    job_token: str = field(repr=False)
    id_tokens: dict[str, str] = field(repr=False)


class GitLabControl:
    """Speaks to the control socket of one stand-in; every method raises ControlError when refused."""

    def __init__(self, socket_path: Path | str, timeout_seconds: float = 30) -> None:
        transport = httpx2.HTTPTransport(uds=str(socket_path))
        self._http = httpx2.Client(
            transport=transport, base_url="http://control", timeout=timeout_seconds, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def create_user(
        self,
        username: str,
        *,
        id: int | None = None,  # noqa: A002 - GitLab's own word
        token: str = "",
        state: str = "active",
        admin: bool = False,
        email: str = "",
        identities: Sequence[tuple[str, str]] = (),
        pass_identities: bool = False,
        groups_direct: Sequence[str] | None = None,
        password: str = "",
    ) -> UserHandle:
        """Create a user; `identities` are (provider, extern_uid) pairs, `password` is for the sign-in page."""
        body = {
            "username": username,
            "id": id,
            "token": token,
            "state": state,
            "admin": admin,
            "email": email,
            "identities": [list(pair) for pair in identities],
            "pass_identities": pass_identities,
            "groups_direct": None if groups_direct is None else list(groups_direct),
            "password": password,
        }
        return UserHandle(**self._call("POST", "/users", body))

    def change_user(self, username: str, **changes: Any) -> None:
        """Change `username`, `state`, `email`, `admin` or `pass_identities`."""
        self._call("PATCH", f"/users/{username}", changes)

    def block_user(self, username: str) -> None:
        """Block an account: its tokens, and its jobs' tokens, are refused with 403 from now on."""
        self.change_user(username, state="blocked")

    def create_project(
        self,
        full_path: str,
        *,
        id: int | None = None,  # noqa: A002 - GitLab's own word
        files: Mapping[str, str] | None = None,
        members: Mapping[str, int] | None = None,
        visibility: str = "private",
        protected_refs: Sequence[str] = (),
        variables: Sequence[Mapping[str, Any]] = (),
        fork_of: int | None = None,
        timeout_seconds: int = 3600,
    ) -> ProjectHandle:
        """Create a project with a first commit; `members` maps username to 10, 20, 30, 40 or 50.

        Args:
            variables: project variables, each with `key`, `value` and optionally file, masked, raw, protected.
            fork_of: id of the project whose repository is copied; `files` are then committed on top.
        """
        namespace, _, path = full_path.rpartition("/")
        body = {
            "path": path,
            "namespace": namespace,
            "id": id,
            "files": dict(files or {}),
            "members": dict(members or {}),
            "visibility": visibility,
            "protected_refs": list(protected_refs),
            "variables": [dict(variable) for variable in variables],
            "fork_of": fork_of,
            "timeout_seconds": timeout_seconds,
        }
        made = self._call("POST", "/projects", body)
        return ProjectHandle(made["id"], made["path_with_namespace"], made["http_url_to_repo"])

    def create_runner(
        self,
        description: str = "realm-runner",
        *,
        tags: Sequence[str] = (),
        run_untagged: bool = True,
        environment: str = "self-hosted",
        token: str = "",
        id: int | None = None,  # noqa: A002 - GitLab's own word
    ) -> RunnerHandle:
        """Register a runner."""
        body = {
            "description": description,
            "tags": list(tags),
            "run_untagged": run_untagged,
            "environment": environment,
            "token": token,
            "id": id,
        }
        return RunnerHandle(**self._call("POST", "/runners", body))

    def set_protected_refs(self, project_id: int, refs: Sequence[str]) -> None:
        """Name the branches and tags that are protected."""
        self._call("PUT", f"/projects/{project_id}/protected_refs", list(refs))

    def set_member(self, project_id: int, username: str, level: int) -> None:
        """Give a user an access level in a project."""
        self._call("PUT", f"/projects/{project_id}/members/{username}?level={level}")

    def commit(
        self, project_id: int, files: Mapping[str, str], *, branch: str = "main", message: str = "Change"
    ) -> str:
        """Commit files (path to text) on a branch without starting a pipeline; returns the sha."""
        body = {"files": dict(files), "branch": branch, "message": message}
        return str(self._call("POST", f"/projects/{project_id}/commits", body)["sha"])

    def start_pipeline(
        self,
        project_id: int,
        username: str,
        *,
        ref: str = "main",
        source: str = "web",
        variables: Mapping[str, str] | None = None,
    ) -> PipelineHandle:
        """Start a pipeline as a user."""
        body = {"username": username, "ref": ref, "source": source, "variables": dict(variables or {})}
        return _pipeline(self._call("POST", f"/projects/{project_id}/pipelines", body))

    def start_fork_pipeline(self, parent_id: int, fork_id: int, username: str, *, ref: str = "main") -> PipelineHandle:
        """A merge request pipeline for a fork's `ref`: project_* names the fork, job_project_* the parent."""
        body = {"username": username, "ref": ref, "fork_id": fork_id}
        return _pipeline(self._call("POST", f"/projects/{parent_id}/pipelines", body))

    def pipeline(self, pipeline_id: int) -> PipelineHandle:
        """A pipeline as it is now."""
        return _pipeline(self._call("GET", f"/pipelines/{pipeline_id}"))

    def pipelines(self, project_id: int) -> list[dict[str, Any]]:
        """All pipelines of a project as dictionaries of id, ref, source, status and sha, by rising id."""
        return list(self._call("GET", f"/projects/{project_id}/pipelines"))

    def wait_for_pipeline(self, pipeline_id: int, timeout_seconds: float = 60) -> PipelineHandle:
        """Wait until the pipeline has ended.

        Raises:
            TimeoutError: it did not in time.
        """
        return self._until(lambda: self.pipeline(pipeline_id), lambda found: found.status in FINISHED, timeout_seconds)

    def job(self, job_id: int) -> JobHandle:
        """A job as it is now."""
        return _job(self._call("GET", f"/jobs/{job_id}"))

    def wait_for_job(self, job_id: int, statuses: frozenset[str] = FINISHED, timeout_seconds: float = 60) -> JobHandle:
        """Wait until the job is in one of the states.

        Raises:
            TimeoutError: it was not in time.
        """
        return self._until(lambda: self.job(job_id), lambda found: found.status in statuses, timeout_seconds)

    def trace(self, job_id: int) -> str:
        """The job's log so far."""
        return str(self._call("GET", f"/jobs/{job_id}/trace")["trace"])

    def wait_for_trace(self, job_id: int, text: str, timeout_seconds: float = 60) -> str:
        """Wait until the job's log contains `text`; returns the log.

        Raises:
            TimeoutError: it did not in time.
        """
        return self._until(lambda: self.trace(job_id), lambda log: text in log, timeout_seconds)

    def cancel_job(self, job_id: int) -> JobHandle:
        """Cancel a job, as the button does."""
        return _job(self._call("POST", f"/jobs/{job_id}/cancel"))

    def tokens(self, job_id: int) -> JobTokens:
        """The secrets of a job; id_tokens exist from the moment a runner took it."""
        return JobTokens(**self._call("GET", f"/jobs/{job_id}/tokens"))

    def mint(
        self,
        job_id: int,
        *,
        audience: str | Sequence[str] = "ci-bridge",
        overrides: Mapping[str, Any] | None = None,
        remove: Sequence[str] = (),
        sign_with: str = "current",
        header: Mapping[str, Any] | None = None,
    ) -> str:
        """An id_token of the job with chosen defects; see realm.gitlab.tokens.mint."""
        body = {
            "job_id": job_id,
            "audience": audience if isinstance(audience, str) else list(audience),
            "overrides": dict(overrides or {}),
            "remove": list(remove),
            "sign_with": sign_with,
            "header": dict(header or {}),
        }
        return str(self._call("POST", "/mint", body)["token"])

    def register_application(
        self,
        redirect_uris: Sequence[str],
        *,
        name: str = "ci-bridge",
        scopes: Sequence[str] = ("openid",),
        confidential: bool = True,
        trusted: bool = False,
        client_id: str = "",
        secret: str = "",
    ) -> ApplicationHandle:
        """Register an OAuth application; `client_id` and `secret` are given out if left empty.

        Args:
            redirect_uris: compared as whole strings.
            confidential: False registers a public client, which has no secret and must use PKCE with S256.
            trusted: nobody is asked whether to authorize it.
        """
        body = {
            "redirect_uris": list(redirect_uris),
            "name": name,
            "scopes": list(scopes),
            "confidential": confidential,
            "trusted": trusted,
            "uid": client_id,
            "secret": secret,
        }
        return ApplicationHandle(**self._call("POST", "/oauth/applications", body))

    def sign_in(self, username: str) -> dict[str, str]:
        """Sign a person in without their password; returns the cookies of their browser."""
        return dict(self._call("POST", f"/users/{username}/session"))

    def authorize(self, authorization_url: str, username: str) -> str:
        """What a person's browser would do with the URL: sign in and authorize; returns the redirection's Location.

        Raises:
            ControlError: the request is not a good one; the text has OAuth's error.
        """
        query = authorization_url.partition("?")[2]
        return str(self._call("POST", "/oauth/authorize", {"username": username, "query": query})["location"])

    def age_oauth(self, seconds: float) -> None:
        """Let every authorization code and access token be older by this much."""
        self._call("POST", "/oauth/age", {"seconds": seconds})

    def live_oauth_tokens(self, client_id: str) -> int:
        """How many access tokens of an application are neither revoked nor expired."""
        return int(self._call("GET", f"/oauth/applications/{client_id}/live_tokens")["count"])

    def rotate_keys(self) -> str:
        """Sign with a new key from now on, the old ones stay published; returns the new kid."""
        return str(self._call("POST", "/keys/rotate")["kid"])

    def withdraw_key(self, kid: str) -> None:
        """Take a key out of the published set."""
        self._call("POST", f"/keys/{kid}/withdraw")

    def misbehave(self, kind: str, times: int = 1, **details: Any) -> None:
        """Arm a fault of realm.gitlab.faults.KINDS, such as `jwks_500` or `job_api_slow` with `seconds=5`."""
        self._call("POST", "/misbehave", {"kind": kind, "times": times, "details": details})

    def behave(self) -> None:
        """Disarm all faults."""
        self._call("DELETE", "/misbehave")

    def requests(self) -> list[dict[str, Any]]:
        """What was asked of the public side: dictionaries of method, path, status and credential kind."""
        return list(self._call("GET", "/requests"))

    def forget_requests(self) -> None:
        """Empty the request log."""
        self._call("DELETE", "/requests")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = self._http.request(method, path, json=body)
        if response.is_success:
            return response.json()
        raise ControlError(f"{method} {path}: {response.status_code} {response.text}")

    def _until(self, ask: Callable[[], T], done: Callable[[T], bool], timeout_seconds: float) -> T:
        deadline = time.monotonic() + timeout_seconds
        while not done(found := ask()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still {found} after {timeout_seconds} s")
            time.sleep(0.05)
        return found


def _job(body: Mapping[str, Any]) -> JobHandle:
    return JobHandle(
        body["id"],
        body["name"],
        body["status"],
        body.get("exit_code"),
        body.get("failure_reason"),
        body["allow_failure"],
    )


def _pipeline(body: Mapping[str, Any]) -> PipelineHandle:
    return PipelineHandle(body["id"], body["status"], body["sha"], tuple(_job(job) for job in body["jobs"]))
