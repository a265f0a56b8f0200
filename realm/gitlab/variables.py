"""The predefined CI/CD variables and the order in which variables of different origin reach a runner."""

from urllib.parse import urlsplit

from realm.gitlab.instance import Instance, now
from realm.gitlab.model import Job, Pipeline, Project, User, Variable
from realm.gitlab.repositories import Commit


def variables_of(instance: Instance, job: Job) -> list[Variable]:
    """All variables of a running job; later ones override earlier ones of the same key.

    Order: predefined, from the file, id_tokens, from the project (protected ones on protected refs only), given with
    the pipeline. Source: GitLab docs, "CI/CD variable precedence".
    """
    store = instance.store
    pipeline = store.pipelines.one(job.pipeline_id)
    project = store.projects.one(job.project_id)
    return [
        *_job_variables(instance, job, project),
        *_pipeline_variables(instance, project, pipeline),
        *_commit_variables(pipeline, instance.repositories.commit_info(project.id, pipeline.sha)),
        *_project_variables(instance, project),
        *_server_variables(instance),
        *_runner_variables(instance, job),
        *_user_variables(store.users.one(job.user_id)),
        *(Variable(key, value) for key, value in job.spec.variables.items()),
        *(Variable(name, token, public=False, masked=True, raw=True) for name, token in job.id_tokens.items()),
        *(variable for variable in project.variables if pipeline.protected or not variable.protected),
        *pipeline.variables,
    ]


def repository_url(instance: Instance, job: Job, project: Project) -> str:
    """The repository's address with the job's credentials in it, as GitLab hands it out."""
    parts = urlsplit(instance.external_url)
    return f"{parts.scheme}://gitlab-ci-token:{job.token}@{parts.netloc}/{project.full_path}.git"


def _job_variables(instance: Instance, job: Job, project: Project) -> list[Variable]:
    found = [
        Variable("CI_JOB_ID", str(job.id)),
        Variable("CI_JOB_URL", f"{instance.external_url}/{project.full_path}/-/jobs/{job.id}"),
        Variable("CI_JOB_TOKEN", job.token, public=False, masked=True),
        Variable("CI_JOB_STARTED_AT", (job.started_at or now()).isoformat()),
        Variable("CI_REPOSITORY_URL", repository_url(instance, job, project), public=False),
        Variable("CI_JOB_NAME", job.spec.name),
        Variable("CI_JOB_STAGE", job.spec.stage),
        Variable("CI_DEPENDENCY_PROXY_USER", "gitlab-ci-token"),
    ]
    if job.spec.image is not None:
        found.append(Variable("CI_JOB_IMAGE", job.spec.image))
    if job.spec.environment is not None:
        found.append(Variable("CI_ENVIRONMENT_NAME", job.spec.environment))
    return found


def _pipeline_variables(instance: Instance, project: Project, pipeline: Pipeline) -> list[Variable]:
    return [
        Variable("CI_PIPELINE_ID", str(pipeline.id)),
        Variable("CI_PIPELINE_IID", str(pipeline.iid)),
        Variable("CI_PIPELINE_SOURCE", pipeline.source),
        Variable("CI_PIPELINE_URL", f"{instance.external_url}/{project.full_path}/-/pipelines/{pipeline.id}"),
        Variable("CI_PIPELINE_CREATED_AT", pipeline.created_at.isoformat()),
        Variable("CI", "true"),
        Variable("GITLAB_CI", "true"),
    ]


def _commit_variables(pipeline: Pipeline, commit: Commit) -> list[Variable]:
    found = [
        Variable("CI_COMMIT_SHA", pipeline.sha),
        Variable("CI_COMMIT_SHORT_SHA", pipeline.sha[:8]),
        Variable("CI_COMMIT_BEFORE_SHA", "0" * 40),
        Variable("CI_COMMIT_REF_NAME", pipeline.ref),
        Variable("CI_COMMIT_REF_SLUG", _slug(pipeline.ref)),
        Variable("CI_COMMIT_REF_PROTECTED", "true" if pipeline.protected else "false"),
        Variable("CI_COMMIT_TITLE", commit.title, raw=True),
        Variable("CI_COMMIT_MESSAGE", commit.message, raw=True),
        Variable("CI_COMMIT_AUTHOR", f"{commit.author_name} <{commit.author_email}>", raw=True),
        Variable("CI_COMMIT_TIMESTAMP", commit.authored_date),
    ]
    if pipeline.ref_type == "tag":
        return [*found, Variable("CI_COMMIT_TAG", pipeline.ref)]
    return [*found, Variable("CI_COMMIT_BRANCH", pipeline.ref)]


def _project_variables(instance: Instance, project: Project) -> list[Variable]:
    return [
        Variable("CI_PROJECT_ID", str(project.id)),
        Variable("CI_PROJECT_NAME", project.path),
        Variable("CI_PROJECT_TITLE", project.path),
        Variable("CI_PROJECT_PATH", project.full_path),
        Variable("CI_PROJECT_PATH_SLUG", _slug(project.full_path)),
        Variable("CI_PROJECT_NAMESPACE", project.namespace_path),
        Variable("CI_PROJECT_ROOT_NAMESPACE", project.namespace_path.split("/")[0]),
        Variable("CI_PROJECT_URL", f"{instance.external_url}/{project.full_path}"),
        Variable("CI_PROJECT_VISIBILITY", project.visibility),
        Variable("CI_DEFAULT_BRANCH", project.default_branch),
        Variable("CI_CONFIG_PATH", ".gitlab-ci.yml"),
    ]


def _server_variables(instance: Instance) -> list[Variable]:
    parts = urlsplit(instance.external_url)
    return [
        Variable("CI_API_V4_URL", f"{instance.external_url}/api/v4"),
        Variable("CI_SERVER_URL", instance.external_url),
        Variable("CI_SERVER_HOST", parts.hostname or ""),
        Variable("CI_SERVER_PORT", str(parts.port or 443)),
        Variable("CI_SERVER_PROTOCOL", parts.scheme),
        Variable("CI_SERVER_FQDN", parts.netloc),
        Variable("CI_SERVER_NAME", "GitLab"),
        Variable("CI_SERVER_VERSION", "18.10.0"),
        Variable("CI_SERVER_VERSION_MAJOR", "18"),
        Variable("CI_SERVER_VERSION_MINOR", "10"),
        Variable("CI_SERVER_REVISION", "standin"),
    ]


def _runner_variables(instance: Instance, job: Job) -> list[Variable]:
    if job.runner_id is None:
        return []
    runner = instance.store.runners.one(job.runner_id)
    tags = ", ".join(f'"{tag}"' for tag in sorted(runner.tags))
    return [
        Variable("CI_RUNNER_ID", str(runner.id)),
        Variable("CI_RUNNER_DESCRIPTION", runner.description),
        Variable("CI_RUNNER_TAGS", f"[{tags}]"),
    ]


def _user_variables(user: User) -> list[Variable]:
    return [
        Variable("GITLAB_USER_ID", str(user.id)),
        Variable("GITLAB_USER_LOGIN", user.username),
        Variable("GITLAB_USER_EMAIL", user.email),
        Variable("GITLAB_USER_NAME", user.name, raw=True),
    ]


def _slug(text: str) -> str:
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text.lower())
    return kept[:63].strip("-")
