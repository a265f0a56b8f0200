"""The answer to a runner's `POST /api/v4/jobs/request`: everything one job needs, in GitLab's shape."""

from dataclasses import asdict
from typing import Any

from realm.gitlab.instance import Instance, now
from realm.gitlab.model import Job, Pipeline, Project
from realm.gitlab.pipelines import dependencies_of
from realm.gitlab.variables import repository_url, variables_of

GIT_DEPTH = 20
"""GitLab's default shallow-clone depth of new projects."""

INSTANCE_UUID = "7d6f1c3e-1b1f-4c59-9f2c-0a2f3f6f0b11"


def job_payload(instance: Instance, job: Job) -> dict[str, Any]:
    """One job for a runner. Source: GitLab's lib/api/entities/ci/job_request/*.rb."""
    project = instance.store.projects.one(job.project_id)
    pipeline = instance.store.pipelines.one(job.pipeline_id)
    return {
        "id": job.id,
        "token": job.token,
        "allow_git_fetch": True,
        "job_info": _job_info(job, project),
        "git_info": _git_info(instance, job, project, pipeline),
        "runner_info": {"timeout": job.timeout_seconds, "runner_session_url": None},
        "inputs": [],
        "variables": [_variable(asdict(variable)) for variable in variables_of(instance, job)],
        "steps": _steps(job),
        "hooks": [],
        "image": {"name": job.spec.image, "entrypoint": None, "ports": []} if job.spec.image else None,
        "services": [{"name": name, "alias": None, "ports": []} for name in job.spec.services],
        "artifacts": _artifacts(job),
        "cache": _caches(job),
        "credentials": [],
        "dependencies": _dependencies(instance, job),
        "features": _features(),
        "secrets": {},
        "run": None,
        "policy_options": {},
        "suspend_options": None,
    }


def _job_info(job: Job, project: Project) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "stage": job.spec.stage,
        "pipeline_id": job.pipeline_id,
        "project_id": project.id,
        "project_name": project.path,
        "project_full_path": project.full_path,
        "namespace_id": project.namespace_id,
        "root_namespace_id": project.namespace_id,
        "organization_id": 1,
        "instance_id": INSTANCE_UUID,
        "instance_uuid": INSTANCE_UUID,
        "user_id": job.user_id,
        "scoped_user_id": None,
        "time_in_queue_seconds": (now() - (job.queued_at or job.created_at)).total_seconds(),
        "project_jobs_running_on_instance_runners_count": "0",
        "queue_size": 0,
        "queue_depth": 0,
    }


def _git_info(instance: Instance, job: Job, project: Project, pipeline: Pipeline) -> dict[str, Any]:
    persistent = f"refs/pipelines/{pipeline.id}"
    refspecs = [f"+{persistent}:{persistent}"]
    if pipeline.merge_request_iid is None:
        kind, local = ("tags", "refs/tags") if pipeline.ref_type == "tag" else ("heads", "refs/remotes/origin")
        refspecs.append(f"+refs/{kind}/{pipeline.ref}:{local}/{pipeline.ref}")
    return {
        "repo_url": repository_url(instance, job, project),
        "repo_object_format": "sha1",
        "ref": pipeline.ref,
        "sha": pipeline.sha,
        "before_sha": "0" * 40,
        "ref_type": pipeline.ref_type,
        "refspecs": refspecs,
        "depth": GIT_DEPTH,
        "protected": pipeline.protected,
    }


def _variable(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: fields[key] for key in ("key", "value", "public", "file", "masked", "raw")}


def _steps(job: Job) -> list[dict[str, Any]]:
    common = {"timeout": job.timeout_seconds}
    steps = [
        {"name": "script", "script": list(job.spec.script), **common, "when": "on_success", "allow_failure": False}
    ]
    if job.spec.after_script:
        after = {"name": "after_script", "script": list(job.spec.after_script), **common}
        steps.append({**after, "when": "always", "allow_failure": True})
    return steps


def _artifacts(job: Job) -> list[dict[str, Any]] | None:
    spec = job.spec.artifacts
    if spec is None:
        return None
    return [
        {
            "name": spec.name,
            "untracked": None,
            "paths": list(spec.paths),
            **({"exclude": list(spec.exclude)} if spec.exclude else {}),
            "when": spec.when,
            "expire_in": spec.expire_in,
            "artifact_type": "archive",
            "artifact_format": "zip",
        }
    ]


def _caches(job: Job) -> list[dict[str, Any]]:
    return [
        {
            "key": cache.key,
            "untracked": None,
            "policy": cache.policy,
            "paths": list(cache.paths),
            "when": cache.when,
            "fallback_keys": [],
        }
        for cache in job.spec.cache
    ]


def _dependencies(instance: Instance, job: Job) -> list[dict[str, Any]]:
    return [
        {
            "id": other.id,
            "name": other.spec.name,
            # The running job's own token opens the archives of the jobs it depends on.
            "token": job.token,
            "artifacts_file": {"filename": archive.filename, "size": archive.size},
        }
        for other in dependencies_of(instance.store, job)
        for archive in other.artifacts
        if archive.file_type == "archive"
    ]


def _features() -> dict[str, Any]:
    return {
        "trace_sections": True,
        "token_mask_prefixes": ["glpat-", "glcbt-", "glrt-"],
        "failure_reasons": [
            "unknown_failure",
            "script_failure",
            "api_failure",
            "stuck_or_timeout_failure",
            "runner_system_failure",
            "job_execution_timeout",
            "image_pull_failure",
        ],
    }
