"""How records look in the REST API: GitLab's entities as JSON-ready dictionaries."""

from datetime import datetime
from typing import Any

from realm.gitlab.instance import Instance
from realm.gitlab.model import Job, Pipeline, Project, User
from realm.gitlab.pipelines import pipeline_status


def timestamp(moment: datetime | None) -> str | None:
    """ISO 8601 with milliseconds and Z, as GitLab writes it."""
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def user_basic(instance: Instance, user: User) -> dict[str, Any]:
    """`UserBasic`: what everybody sees."""
    return {
        "id": user.id,
        "username": user.username,
        "public_email": None,
        "name": user.name,
        "state": user.state,
        "locked": False,
        "avatar_url": None,
        "web_url": f"{instance.external_url}/{user.username}",
    }


def user_full(instance: Instance, user: User, viewer: User) -> dict[str, Any]:
    """What the person and administrators see; `identities` is for administrators, and for `GET /user`."""
    found = {**user_basic(instance, user), "bot": False, "external": False, "created_at": None}
    if viewer.admin or viewer.id == user.id:
        found |= {
            "email": user.email,
            "identities": [
                {"provider": i.provider, "extern_uid": i.extern_uid, "saml_provider_id": None} for i in user.identities
            ],
        }
    if viewer.admin:
        found["is_admin"] = user.admin
    return found


def project_entity(instance: Instance, project: Project) -> dict[str, Any]:
    """A project."""
    url = f"{instance.external_url}/{project.full_path}"
    found: dict[str, Any] = {
        "id": project.id,
        "name": project.path,
        "path": project.path,
        "name_with_namespace": project.full_path.replace("/", " / "),
        "path_with_namespace": project.full_path,
        "default_branch": project.default_branch,
        "visibility": project.visibility,
        "http_url_to_repo": f"{url}.git",
        "web_url": url,
        "namespace": {
            "id": project.namespace_id,
            "name": project.namespace_path,
            "path": project.namespace_path.split("/")[-1],
            "kind": "group",
            "full_path": project.namespace_path,
        },
        "build_timeout": project.timeout_seconds,
        "archived": False,
    }
    if project.forked_from_id is not None:
        parent = instance.store.projects.one(project.forked_from_id)
        found["forked_from_project"] = {"id": parent.id, "path_with_namespace": parent.full_path}
    return found


def pipeline_basic(instance: Instance, pipeline: Pipeline) -> dict[str, Any]:
    """A pipeline as it appears inside jobs and lists."""
    project = instance.store.projects.one(pipeline.project_id)
    return {
        "id": pipeline.id,
        "iid": pipeline.iid,
        "project_id": pipeline.project_id,
        "sha": pipeline.sha,
        "ref": pipeline.ref,
        "status": pipeline_status(instance.store, pipeline.id),
        "source": pipeline.source,
        "created_at": timestamp(pipeline.created_at),
        "updated_at": timestamp(pipeline.created_at),
        "web_url": f"{instance.external_url}/{project.full_path}/-/pipelines/{pipeline.id}",
    }


def pipeline_entity(instance: Instance, pipeline: Pipeline) -> dict[str, Any]:
    """A pipeline on its own page."""
    jobs = instance.store.jobs_of(pipeline.id)
    started = [job.started_at for job in jobs if job.started_at]
    finished = [job.finished_at for job in jobs if job.finished_at]
    return {
        **pipeline_basic(instance, pipeline),
        "before_sha": "0" * 40,
        "tag": pipeline.ref_type == "tag",
        "yaml_errors": None,
        "user": user_basic(instance, instance.store.users.one(pipeline.user_id)),
        "started_at": timestamp(min(started, default=None)),
        "finished_at": timestamp(max(finished)) if len(finished) == len(jobs) and finished else None,
        "committed_at": None,
        "coverage": None,
    }


def job_entity(instance: Instance, job: Job) -> dict[str, Any]:
    """A job, as `GET /job` and the job lists show it."""
    store = instance.store
    pipeline = store.pipelines.one(job.pipeline_id)
    project = store.projects.one(job.project_id)
    ended = job.finished_at
    duration = (ended - job.started_at).total_seconds() if ended and job.started_at else None
    archive = next((a for a in job.artifacts if a.file_type == "archive"), None)
    found: dict[str, Any] = {
        "id": job.id,
        "status": job.status,
        "stage": job.spec.stage,
        "name": job.spec.name,
        "ref": pipeline.ref,
        "tag": pipeline.ref_type == "tag",
        "coverage": None,
        "allow_failure": job.allow_failure,
        "created_at": timestamp(job.created_at),
        "started_at": timestamp(job.started_at),
        "finished_at": timestamp(job.finished_at),
        "erased_at": None,
        "duration": duration,
        "queued_duration": _queued(job),
        "user": user_basic(instance, store.users.one(job.user_id)),
        "commit": _commit(instance, project, pipeline),
        "pipeline": pipeline_basic(instance, pipeline),
        "web_url": f"{instance.external_url}/{project.full_path}/-/jobs/{job.id}",
        "project": {"ci_job_token_scope_enabled": True},
        "artifacts": [
            {"file_type": a.file_type, "size": a.size, "filename": a.filename, "file_format": a.file_format}
            for a in job.artifacts
        ],
        "runner": _runner(instance, job),
        "artifacts_expire_at": None,
        "archived": False,
        "tag_list": sorted(job.spec.tags),
    }
    if archive is not None:
        found["artifacts_file"] = {"filename": archive.filename, "size": archive.size}
    if job.failure_reason is not None:
        found["failure_reason"] = job.failure_reason
    if job.exit_code is not None:
        found["exit_code"] = job.exit_code
    return found


def _queued(job: Job) -> float | None:
    if job.queued_at is None or job.started_at is None:
        return None
    return (job.started_at - job.queued_at).total_seconds()


def _commit(instance: Instance, project: Project, pipeline: Pipeline) -> dict[str, Any]:
    commit = instance.repositories.commit_info(project.id, pipeline.sha)
    return {
        "id": commit.sha,
        "short_id": commit.sha[:8],
        "parent_ids": list(commit.parents),
        "title": commit.title,
        "message": commit.message,
        "author_name": commit.author_name,
        "author_email": commit.author_email,
        "authored_date": commit.authored_date,
        "created_at": commit.authored_date,
        "web_url": f"{instance.external_url}/{project.full_path}/-/commit/{commit.sha}",
    }


def _runner(instance: Instance, job: Job) -> dict[str, Any] | None:
    if job.runner_id is None:
        return None
    runner = instance.store.runners.one(job.runner_id)
    return {
        "id": runner.id,
        "description": runner.description,
        "active": not runner.paused,
        "paused": runner.paused,
        "is_shared": True,
        "runner_type": "instance_type",
        "name": None,
        "online": True,
        "status": "online",
    }
