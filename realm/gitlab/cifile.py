"""Reads `.gitlab-ci.yml`, written as JSON (a subset of YAML), into typed job specifications."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_STAGES = ("build", "test", "deploy")

RESERVED = frozenset(
    {
        "stages",
        "variables",
        "default",
        "workflow",
        "include",
        "image",
        "services",
        "cache",
        "before_script",
        "after_script",
        "id_tokens",
    }
)
"""Top-level keys that are not job names."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class CiFileError(ValueError):
    """A `.gitlab-ci.yml` that GitLab would refuse; the text goes to the person who started the pipeline."""


@dataclass(frozen=True)
class ArtifactSpec:
    """What a job uploads; `when` is on_success, on_failure or always."""

    paths: tuple[str, ...]
    when: str = "on_success"
    name: str | None = None
    exclude: tuple[str, ...] = ()
    expire_in: str | None = None


@dataclass(frozen=True)
class CacheSpec:
    """What a job keeps between pipelines; `policy` is pull, push or pull-push."""

    key: str
    paths: tuple[str, ...]
    policy: str = "pull-push"
    when: str = "on_success"


@dataclass(frozen=True)
class JobSpec:
    """One job of the file, before it has an id."""

    name: str
    stage: str
    script: tuple[str, ...]
    after_script: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    id_tokens: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Variable name to audience, a string or several."""
    tags: frozenset[str] = frozenset()
    timeout_seconds: int | None = None
    allow_failure: bool = False
    allow_failure_codes: frozenset[int] = frozenset()
    when: str = "on_success"
    needs: tuple[str, ...] | None = None
    dependencies: tuple[str, ...] | None = None
    artifacts: ArtifactSpec | None = None
    cache: tuple[CacheSpec, ...] = ()
    environment: str | None = None
    image: str | None = None
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class CiFile:
    """All jobs in the order of their stages."""

    stages: tuple[str, ...]
    jobs: tuple[JobSpec, ...]


def parse_ci_file(text: str) -> CiFile:
    """Read the file's text.

    Raises:
        CiFileError: it is not a JSON object, a job has no script, or a stage or need does not exist.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise CiFileError(
            f"(<unknown>): did not find expected node content at line {error.lineno} column {error.colno}; "
            "this stand-in reads .gitlab-ci.yml as JSON, which is a subset of YAML"
        ) from error
    if not isinstance(document, dict):
        raise CiFileError("root config contains unknown keys: the root must be a mapping")
    stages = (".pre", *_texts(document.get("stages") or DEFAULT_STAGES, "stages"), ".post")
    jobs = [
        _job(name, body, document, stages)
        for name, body in document.items()
        if name not in RESERVED and not name.startswith(".")
    ]
    if not jobs:
        raise CiFileError("jobs config should contain at least one visible job")
    names = {job.name for job in jobs}
    for job in jobs:
        _check_needs(job, names)
    return CiFile(stages, tuple(sorted(jobs, key=lambda job: stages.index(job.stage))))


def seconds_of(text: str | int) -> int:
    """A GitLab duration such as `90s`, `10 minutes`, `1h 30m` or plain seconds, as seconds."""
    if isinstance(text, int):
        return text
    total = sum(
        int(number) * _UNITS[(unit or "s")[0]]
        for number, unit in re.findall(r"(\d+)\s*([smhd]?)[a-z]*", text.strip().lower())
    )
    if total <= 0:
        raise CiFileError(f"timeout config should be a duration, got {text!r}")
    return total


def _job(name: str, body: Any, document: dict[str, Any], stages: tuple[str, ...]) -> JobSpec:
    if not isinstance(body, dict) or "script" not in body:
        raise CiFileError(f"jobs:{name} config should implement the script: keyword")
    default = {**{key: document[key] for key in RESERVED if key in document}, **document.get("default", {})}

    def inherited(key: str) -> Any:
        return body[key] if key in body else default.get(key)

    stage = body.get("stage", "test")
    if stage not in stages:
        raise CiFileError(f"{name} job: chosen stage {stage} does not exist; available stages are {', '.join(stages)}")
    allow = body.get("allow_failure", False)
    return JobSpec(
        name=name,
        stage=stage,
        script=(*_texts(inherited("before_script"), "before_script"), *_texts(body["script"], "script")),
        after_script=_texts(inherited("after_script"), "after_script"),
        variables=_variables({**document.get("variables", {}), **body.get("variables", {})}),
        id_tokens=_id_tokens(inherited("id_tokens") or {}),
        tags=frozenset(_texts(inherited("tags"), "tags")),
        timeout_seconds=seconds_of(inherited("timeout")) if inherited("timeout") else None,
        allow_failure=allow is True,
        allow_failure_codes=_exit_codes(allow),
        when=body.get("when", "on_success"),
        needs=_needs(body),
        dependencies=_texts(body["dependencies"], "dependencies") if "dependencies" in body else None,
        artifacts=_artifacts(inherited("artifacts")),
        cache=_caches(inherited("cache")),
        environment=_named(body.get("environment")),
        image=_named(inherited("image")),
        services=tuple(filter(None, (_named(service) for service in inherited("services") or ()))),
    )


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise CiFileError(f"{key} config should be a string or a list of strings")
    return tuple(items)


def _variables(values: dict[str, Any]) -> dict[str, str]:
    flat = {key: value["value"] if isinstance(value, dict) else value for key, value in values.items()}
    return {key: "" if value is None else str(value) for key, value in flat.items()}


def _id_tokens(values: dict[str, Any]) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {}
    for name, body in values.items():
        audience = body.get("aud") if isinstance(body, dict) else None
        if not audience:
            raise CiFileError(f"id_tokens:{name} config should define an aud")
        found[name] = audience if isinstance(audience, str) else _texts(audience, "aud")
    return found


def _exit_codes(allow: Any) -> frozenset[int]:
    if not isinstance(allow, dict):
        return frozenset()
    codes = allow.get("exit_codes", [])
    return frozenset([codes] if isinstance(codes, int) else codes)


def _needs(body: dict[str, Any]) -> tuple[str, ...] | None:
    if "needs" not in body:
        return None
    return tuple(need["job"] if isinstance(need, dict) else need for need in body["needs"])


def _artifacts(value: Any) -> ArtifactSpec | None:
    if not value:
        return None
    return ArtifactSpec(
        paths=_texts(value.get("paths"), "artifacts:paths"),
        when=value.get("when", "on_success"),
        name=value.get("name"),
        exclude=_texts(value.get("exclude"), "artifacts:exclude"),
        expire_in=value.get("expire_in"),
    )


def _caches(value: Any) -> tuple[CacheSpec, ...]:
    if not value:
        return ()
    entries = value if isinstance(value, list) else [value]
    return tuple(
        CacheSpec(
            key=str(entry.get("key", "default")),
            paths=_texts(entry.get("paths"), "cache:paths"),
            policy=entry.get("policy", "pull-push"),
            when=entry.get("when", "on_success"),
        )
        for entry in entries
    )


def _named(value: Any) -> str | None:
    return str(value["name"]) if isinstance(value, dict) else value


def _check_needs(job: JobSpec, names: set[str]) -> None:
    missing = [need for need in (*(job.needs or ()), *(job.dependencies or ())) if need not in names]
    if missing:
        raise CiFileError(f"{job.name} job: undefined need or dependency: {missing[0]}")
