"""Creates pipelines from a project's `.gitlab-ci.yml` and moves their jobs through the states."""

from collections.abc import Iterable
from typing import Any

from realm.gitlab.cifile import CiFileError, JobSpec, parse_ci_file
from realm.gitlab.errors import ApiError
from realm.gitlab.instance import Instance, new_token, now
from realm.gitlab.model import FINISHED, LIVE, MAINTAINER, Job, JobStatus, Pipeline, Project, Runner, User, Variable
from realm.gitlab.store import Store
from realm.gitlab.tokens import id_token

CONFIG_FILE = ".gitlab-ci.yml"


def create_pipeline(
    instance: Instance,
    project: Project,
    user: User,
    ref: str,
    *,
    source: str,
    variables: tuple[Variable, ...] = (),
    fork: Project | None = None,
) -> Pipeline:
    """Create a pipeline at the head of `ref` and queue its first jobs.

    Args:
        project: where the jobs run.
        source: the pipeline_source, such as `api`, `web`, `push` or `merge_request_event`.
        fork: the project that holds `ref` when a merge request comes from a fork.

    Raises:
        ApiError: 400 with GitLab's `base` complaint when ref or file is missing or wrong, or the ref is protected
            from this user.
    """
    origin = fork or project
    resolved = instance.repositories.resolve(origin.id, ref)
    if resolved is None:
        raise _refused("Reference not found")
    kind, sha = resolved
    protected = fork is None and ref in project.protected_refs
    if protected and project.members.get(user.id, 0) < MAINTAINER and not user.admin:
        raise _refused(f"You do not have sufficient permission to run a pipeline on '{ref}'.")
    text = instance.repositories.read(origin.id, sha, CONFIG_FILE)
    if text is None:
        raise _refused("Missing CI config file")
    try:
        specs = parse_ci_file(text).jobs
    except CiFileError as error:
        raise _refused(str(error)) from error
    merge_request = _merge_request_iid(instance.store, project) if source == "merge_request_event" else None
    with instance.store.lock:
        siblings = instance.store.pipelines.select(lambda other: other.project_id == project.id)
        pipeline = instance.store.pipelines.add(
            lambda number: Pipeline(
                id=number,
                iid=len(siblings) + 1,
                project_id=project.id,
                source_project_id=origin.id,
                user_id=user.id,
                ref=ref,
                ref_type=kind,
                sha=sha,
                source=source,
                created_at=now(),
                protected=protected,
                variables=variables,
                merge_request_iid=merge_request,
            )
        )
        _publish_refs(instance, pipeline)
        for spec in specs:
            add_job(instance.store, pipeline, project, user.id, spec)
    advance(instance.store, pipeline.id)
    return pipeline


def add_job(store: Store, pipeline: Pipeline, project: Project, user_id: int, spec: JobSpec) -> Job:
    """Store one job in state created."""
    return store.jobs.add(
        lambda number: Job(
            id=number,
            token=new_token("glcbt-"),
            pipeline_id=pipeline.id,
            project_id=project.id,
            user_id=user_id,
            spec=spec,
            timeout_seconds=spec.timeout_seconds or project.timeout_seconds,
            created_at=now(),
            allow_failure=spec.allow_failure,
        )
    )


def take_job(instance: Instance, runner: Runner, features: dict[str, Any]) -> Job | None:
    """Give the oldest fitting pending job to a runner: it starts running and gets its id_tokens."""
    store = instance.store
    with store.lock:
        job = store.jobs.find(lambda job: job.status is JobStatus.PENDING and _fits(runner, job.spec))
        if job is None:
            return None
        job = store.set_status(
            job.id,
            JobStatus.RUNNING,
            runner_id=runner.id,
            started_at=now(),
            graceful_cancel=bool(features.get("cancel_gracefully")),
        )
        tokens = {name: id_token(instance, job, audience) for name, audience in job.spec.id_tokens.items()}
        return store.jobs.update(job.id, id_tokens=tokens)


def finish_job(store: Store, job: Job, state: str, exit_code: int | None, reason: str | None) -> Job:
    """Apply a runner's final word; a job that was being canceled ends as canceled whatever the runner says."""
    with store.lock:
        changes: dict[str, Any] = {"finished_at": now(), "exit_code": exit_code}
        if job.status is JobStatus.CANCELING:
            ended = store.set_status(job.id, JobStatus.CANCELED, **changes)
        elif state == "success":
            ended = store.set_status(job.id, JobStatus.SUCCESS, **changes)
        else:
            allowed = job.spec.allow_failure or exit_code in job.spec.allow_failure_codes
            changes |= {"failure_reason": reason or "unknown_failure", "allow_failure": allowed}
            ended = store.set_status(job.id, JobStatus.FAILED, **changes)
    advance(store, job.pipeline_id)
    return ended


def cancel_job(store: Store, job: Job) -> Job:
    """Cancel a job: at once if it waits, through `canceling` if its runner can end it gracefully."""
    with store.lock:
        job = store.jobs.one(job.id)
        if job.status in FINISHED:
            return job
        graceful = job.status in LIVE and job.graceful_cancel
        if graceful:
            return store.set_status(job.id, JobStatus.CANCELING)
        ended = store.set_status(job.id, JobStatus.CANCELED, finished_at=now())
    advance(store, job.pipeline_id)
    return ended


def retry_job(store: Store, job: Job, user: User) -> Job:
    """A new job with the same specification, as the user who asks (so identity follows the retry, as in GitLab)."""
    pipeline = store.pipelines.one(job.pipeline_id)
    fresh = add_job(store, pipeline, store.projects.one(job.project_id), user.id, job.spec)
    return store.set_status(fresh.id, JobStatus.PENDING, queued_at=now())


def advance(store: Store, pipeline_id: int) -> None:
    """Queue or skip every created job whose predecessors have finished, until nothing changes."""
    with store.lock:
        while True:
            jobs = _latest(store.jobs_of(pipeline_id))
            moved = [job for job in jobs if job.status is JobStatus.CREATED and _try_move(store, job, jobs)]
            if not moved:
                return


def pipeline_status(store: Store, pipeline_id: int) -> JobStatus:
    """GitLab's composite status of the latest jobs."""
    jobs = _latest(store.jobs_of(pipeline_id))
    states = {job.status for job in jobs}
    for state in (JobStatus.CANCELING, JobStatus.RUNNING):
        if state in states:
            return state
    if states & {JobStatus.PENDING, JobStatus.CREATED}:
        return JobStatus.RUNNING if states & FINISHED else JobStatus.PENDING
    if any(job.status is JobStatus.FAILED and not job.allow_failure for job in jobs):
        return JobStatus.FAILED
    if JobStatus.CANCELED in states:
        return JobStatus.CANCELED
    return JobStatus.SUCCESS if states & {JobStatus.SUCCESS, JobStatus.FAILED} else JobStatus.SKIPPED


def dependencies_of(store: Store, job: Job) -> list[Job]:
    """The jobs whose archives this job downloads: `dependencies`, else `needs`, else all of earlier stages."""
    jobs = _latest(store.jobs_of(job.pipeline_id))
    named = job.spec.dependencies if job.spec.dependencies is not None else job.spec.needs
    if named is not None:
        return [other for other in jobs if other.spec.name in named]
    earlier = _earlier_names(store, job)
    return [other for other in jobs if other.spec.name in earlier]


def _refused(complaint: str) -> ApiError:
    return ApiError(400, {"base": [complaint]})


def _merge_request_iid(store: Store, project: Project) -> int:
    numbers = [p.merge_request_iid or 0 for p in store.pipelines.select(lambda p: p.project_id == project.id)]
    return max(numbers, default=0) + 1


def _publish_refs(instance: Instance, pipeline: Pipeline) -> None:
    if pipeline.merge_request_iid is not None:
        name = f"refs/merge-requests/{pipeline.merge_request_iid}/head"
        instance.repositories.fetch_from(pipeline.project_id, pipeline.source_project_id, pipeline.sha, name)
    instance.repositories.set_ref(pipeline.project_id, f"refs/pipelines/{pipeline.id}", pipeline.sha)


def _fits(runner: Runner, spec: JobSpec) -> bool:
    return runner.run_untagged if not spec.tags else spec.tags <= runner.tags


def _latest(jobs: Iterable[Job]) -> list[Job]:
    return list({job.spec.name: job for job in jobs}.values())


def _try_move(store: Store, job: Job, jobs: list[Job]) -> bool:
    names = set(job.spec.needs) if job.spec.needs is not None else _earlier_names(store, job)
    before = [other for other in jobs if other.spec.name in names]
    if any(other.status not in FINISHED for other in before):
        return False
    bad = {JobStatus.CANCELED, JobStatus.SKIPPED}
    broken = any(o.status in bad or (o.status is JobStatus.FAILED and not o.allow_failure) for o in before)
    wanted = {"always": True, "on_failure": broken}.get(job.spec.when, not broken)
    if wanted:
        store.set_status(job.id, JobStatus.PENDING, queued_at=now())
    else:
        store.set_status(job.id, JobStatus.SKIPPED, finished_at=now())
    return True


def _earlier_names(store: Store, job: Job) -> set[str]:
    """Names of jobs in earlier stages; jobs are stored in stage order, so an earlier stage has lower first ids."""
    first_of_stage: dict[str, int] = {}
    jobs = store.jobs_of(job.pipeline_id)
    for other in jobs:
        first_of_stage.setdefault(other.spec.stage, other.id)
    return {o.spec.name for o in jobs if first_of_stage[o.spec.stage] < first_of_stage[job.spec.stage]}
