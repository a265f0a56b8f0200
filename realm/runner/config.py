"""Reads GitLab Runner's own config.toml, as far as the custom executor uses it."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXEC_TIMEOUT_SECONDS = 3600
GRACEFUL_KILL_SECONDS = 600
FORCE_KILL_SECONDS = 10
"""The documentation says 600, the runner's code says 10 (helpers/process/killer.go)."""

DEFAULT_OUTPUT_LIMIT_KIB = 4096
DEFAULT_CHECK_INTERVAL_SECONDS = 3


class ConfigError(ValueError):
    """A config.toml that can not be used; the text says where and why."""


@dataclass(frozen=True)
class CustomConfig:
    """`[runners.custom]`; time-outs are seconds, and zero or less means the default."""

    run_exec: str
    run_args: tuple[str, ...] = ()
    config_exec: str = ""
    config_args: tuple[str, ...] = ()
    config_exec_timeout: int = EXEC_TIMEOUT_SECONDS
    prepare_exec: str = ""
    prepare_args: tuple[str, ...] = ()
    prepare_exec_timeout: int = EXEC_TIMEOUT_SECONDS
    cleanup_exec: str = ""
    cleanup_args: tuple[str, ...] = ()
    cleanup_exec_timeout: int = EXEC_TIMEOUT_SECONDS
    graceful_kill_timeout: int = GRACEFUL_KILL_SECONDS
    force_kill_timeout: int = FORCE_KILL_SECONDS


@dataclass(frozen=True)
class RunnerConfig:
    """One `[[runners]]` section."""

    name: str
    url: str
    token: str = field(repr=False)
    custom: CustomConfig
    builds_dir: str = ""
    cache_dir: str = ""
    shell: str = "bash"
    tls_ca_file: Path | None = None
    environment: tuple[str, ...] = ()
    clone_url: str = ""
    output_limit_kib: int = DEFAULT_OUTPUT_LIMIT_KIB
    limit: int = 0
    prepare_timeout: int = 0
    get_sources_timeout: int = 0

    @property
    def short_token(self) -> str:
        """The first nine characters after the token's prefix, as the runner names itself."""
        token = self.token
        if token.startswith(("glrt-", "glcbt-")):
            token = token.split("-", 1)[1]
        return token[:9]


@dataclass(frozen=True)
class Config:
    """The whole file."""

    runners: tuple[RunnerConfig, ...]
    concurrent: int = 1
    check_interval: int = DEFAULT_CHECK_INTERVAL_SECONDS


def load_config(path: Path) -> Config:
    """Read a config.toml.

    Raises:
        ConfigError: it is missing, not TOML, or lacks what the custom executor needs.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    runners = tuple(_runner(section, path) for section in document.get("runners", []))
    if not runners:
        raise ConfigError(f"{path}: there is no [[runners]] section")
    interval = int(document.get("check_interval", 0))
    return Config(
        runners=runners,
        concurrent=int(document.get("concurrent", 1)),
        check_interval=interval if interval > 0 else DEFAULT_CHECK_INTERVAL_SECONDS,
    )


def _runner(section: Mapping[str, Any], path: Path) -> RunnerConfig:
    name = str(section.get("name", ""))
    where = f"{path}: runner {name!r}"
    if section.get("executor") != "custom":
        raise ConfigError(f'{where}: this driver serves executor = "custom" only')
    for key in ("url", "token"):
        if not section.get(key):
            raise ConfigError(f"{where}: {key} is missing")
    ca_file = section.get("tls-ca-file")
    limit = int(section.get("output_limit", 0))
    return RunnerConfig(
        name=name,
        url=str(section["url"]).rstrip("/"),
        token=str(section["token"]),
        custom=_custom(section.get("custom") or {}, where),
        builds_dir=str(section.get("builds_dir", "")),
        cache_dir=str(section.get("cache_dir", "")),
        shell=str(section.get("shell", "bash")),
        tls_ca_file=Path(ca_file) if ca_file else None,
        environment=tuple(str(item) for item in section.get("environment", [])),
        clone_url=str(section.get("clone_url", "")).rstrip("/"),
        output_limit_kib=limit if limit > 0 else DEFAULT_OUTPUT_LIMIT_KIB,
        limit=int(section.get("limit", 0)),
        prepare_timeout=int(section.get("prepare_timeout", 0)),
        get_sources_timeout=int(section.get("get_sources_timeout", 0)),
    )


def _custom(section: Mapping[str, Any], where: str) -> CustomConfig:
    if not section.get("run_exec"):
        raise ConfigError(f"{where}: custom executor is missing run_exec")
    return CustomConfig(
        run_exec=str(section["run_exec"]),
        run_args=_arguments(section, "run_args"),
        config_exec=str(section.get("config_exec", "")),
        config_args=_arguments(section, "config_args"),
        config_exec_timeout=_seconds(section, "config_exec_timeout", EXEC_TIMEOUT_SECONDS),
        prepare_exec=str(section.get("prepare_exec", "")),
        prepare_args=_arguments(section, "prepare_args"),
        prepare_exec_timeout=_seconds(section, "prepare_exec_timeout", EXEC_TIMEOUT_SECONDS),
        cleanup_exec=str(section.get("cleanup_exec", "")),
        cleanup_args=_arguments(section, "cleanup_args"),
        cleanup_exec_timeout=_seconds(section, "cleanup_exec_timeout", EXEC_TIMEOUT_SECONDS),
        graceful_kill_timeout=_seconds(section, "graceful_kill_timeout", GRACEFUL_KILL_SECONDS),
        force_kill_timeout=_seconds(section, "force_kill_timeout", FORCE_KILL_SECONDS),
    )


def _arguments(section: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(str(item) for item in section.get(key, []))


def _seconds(section: Mapping[str, Any], key: str, default: int) -> int:
    value = int(section.get(key, 0))
    return value if value > 0 else default
