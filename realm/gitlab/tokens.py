"""Mints id_tokens with GitLab's claim set, and forgeries of them with chosen defects."""

import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from typing import Any

from realm.gitlab.instance import Instance, now
from realm.gitlab.keys import SigningKey, b64url
from realm.gitlab.model import ACCESS_LEVELS, Job, Pipeline, Project, User

NOT_BEFORE_SECONDS = 5
"""GitLab's lib/gitlab/ci/jwt.rb: NOT_BEFORE_TIME."""

Audience = str | tuple[str, ...]


def claims_of(instance: Instance, job: Job, audience: Audience) -> dict[str, Any]:
    """The claims of one id_token as GitLab 18 writes them: ids as strings, `runner_id` as integer, booleans as text.

    In a merge request from a fork `project_*` name the fork and `job_project_*` the project that runs the job.
    """
    store = instance.store
    pipeline = store.pipelines.one(job.pipeline_id)
    project = store.projects.one(job.project_id)
    source = store.projects.one(pipeline.source_project_id)
    user = store.users.one(job.user_id)
    issued = int(now().timestamp())
    claims: dict[str, Any] = {
        **_project_claims(source),
        **_user_claims(source, user),
        **{f"job_{key}": value for key, value in _project_claims(project).items()},
        **_pipeline_claims(job, pipeline),
        **_environment_claims(job),
        **_config_claims(instance, project, pipeline),
        "project_visibility": project.visibility,
        "jti": str(uuid.uuid4()),
        "iss": instance.external_url,
        "iat": issued,
        "nbf": issued - NOT_BEFORE_SECONDS,
        "exp": issued + job.timeout_seconds,
        "sub": f"project_path:{source.full_path}:ref_type:{pipeline.ref_type}:ref:{pipeline.ref}",
        "aud": audience if isinstance(audience, str) else list(audience),
    }
    if job.runner_id is not None:
        claims["runner_id"] = job.runner_id
        claims["runner_environment"] = store.runners.one(job.runner_id).environment
    return claims


def id_token(instance: Instance, job: Job, audience: Audience) -> str:
    """A well-formed id_token, signed with the current key."""
    key = instance.keys.current
    return compact({"alg": "RS256", "typ": "JWT", "kid": key.kid}, claims_of(instance, job, audience), key)


def mint(
    instance: Instance,
    job: Job,
    audience: Audience,
    *,
    overrides: Mapping[str, Any],
    remove: tuple[str, ...] = (),
    sign_with: str = "current",
    header: Mapping[str, Any],
) -> str:
    """An id_token of a job with defects.

    Args:
        overrides: claims that replace the true ones, of any JSON type.
        remove: claims to leave out.
        sign_with: `current`; a kid (also of a withdrawn key); `unknown`, a key nobody published; `none`, an unsigned
            token with alg none; `hs256`, an HMAC keyed with the current public key's PEM (algorithm confusion);
            `empty`, an RS256 header with an empty signature.
        header: JOSE header members that replace or add to the true ones; a null value removes the member.

    Raises:
        ValueError: `sign_with` names no key.
    """
    claims = {**claims_of(instance, job, audience), **overrides}
    for name in remove:
        claims.pop(name, None)
    key = _signing_key(instance, sign_with)
    algorithm = {"none": "none", "hs256": "HS256"}.get(sign_with, "RS256")
    full = {"alg": algorithm, "typ": "JWT", "kid": key.kid, **header}
    jose = {name: value for name, value in full.items() if value is not None}
    if sign_with in ("none", "empty"):
        return f"{_signing_input(jose, claims)}."
    if sign_with == "hs256":
        text = _signing_input(jose, claims)
        return f"{text}.{b64url(hmac.digest(key.public_pem(), text.encode(), hashlib.sha256))}"
    return compact(jose, claims, key)


def compact(header: Mapping[str, Any], claims: Mapping[str, Any], key: SigningKey) -> str:
    """A JWS in compact serialisation (RFC 7515 section 3.1)."""
    text = _signing_input(header, claims)
    return f"{text}.{b64url(key.sign(text.encode()))}"


def _signing_key(instance: Instance, sign_with: str) -> SigningKey:
    if sign_with in ("current", "none", "hs256", "empty"):
        return instance.keys.current
    if sign_with == "unknown":
        return SigningKey.generate()
    found = instance.keys.find(sign_with)
    if found is None:
        raise ValueError(f"no signing key {sign_with!r}")
    return found


def _signing_input(header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    return ".".join(b64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))


def _project_claims(project: Project) -> dict[str, str]:
    return {
        "project_id": str(project.id),
        "project_path": project.full_path,
        "namespace_id": str(project.namespace_id),
        "namespace_path": project.namespace_path,
    }


def _user_claims(project: Project, user: User) -> dict[str, Any]:
    claims: dict[str, Any] = {
        "user_id": str(user.id),
        "user_login": user.username,
        "user_email": user.email,
        "user_access_level": ACCESS_LEVELS.get(project.members.get(user.id, 0)),
    }
    if user.pass_identities:
        claims["user_identities"] = [{"provider": i.provider, "extern_uid": i.extern_uid} for i in user.identities]
    if user.groups_direct is not None:
        claims["groups_direct"] = list(user.groups_direct)
    return claims


def _pipeline_claims(job: Job, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline_id": str(pipeline.id),
        "pipeline_source": pipeline.source,
        "job_id": str(job.id),
        "ref": pipeline.ref,
        "ref_type": pipeline.ref_type,
        "ref_path": pipeline.ref_path,
        "ref_protected": "true" if pipeline.protected else "false",
        "sha": pipeline.sha,
    }


def _environment_claims(job: Job) -> dict[str, Any]:
    if job.spec.environment is None:
        return {}
    tier = "production" if job.spec.environment.startswith("prod") else "other"
    return {
        "environment": job.spec.environment,
        "environment_protected": "false",
        "deployment_tier": tier,
        "environment_action": "start",
    }


def _config_claims(instance: Instance, project: Project, pipeline: Pipeline) -> dict[str, Any]:
    ref = pipeline.ref_path
    if pipeline.merge_request_iid is not None:
        ref = f"refs/merge-requests/{pipeline.merge_request_iid}/head"
    return {
        "ci_config_ref_uri": f"{instance.host}/{project.full_path}//.gitlab-ci.yml@{ref}",
        "ci_config_sha": pipeline.sha,
    }
