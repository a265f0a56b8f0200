"""The state of one build: its job, its folders, its status, and the variables that follow from them."""

import json
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from realm.runner.config import RunnerConfig
from realm.runner.errors import BuildError
from realm.runner.job import Job
from realm.runner.variables import Variable, expanded, from_environment, lookup


@dataclass
class Build:
    """One passage of a job through this runner.

    Attributes:
        slot: CI_CONCURRENT_ID, unique among running builds of this runner.
        project_slot: CI_CONCURRENT_PROJECT_ID, unique among those of the same project.
        status: CI_JOB_STATUS: running, then success, failed or canceled before after_script.
        root_dir, project_dir, cache_dir: on the machine where scripts run; empty until config_exec has answered.
        shell: the shell that scripts are written for.
    """

    job: Job
    runner: RunnerConfig
    slot: int
    project_slot: int
    status: str = "running"
    root_dir: str = ""
    project_dir: str = ""
    cache_dir: str = ""
    shell: str = field(default="bash")

    def start(self, builds_dir: str, cache_dir: str, *, shared: bool) -> None:
        """Fix the folders, after config_exec had its say.

        Raises:
            BuildError: neither config.toml nor config_exec named them.
        """
        if not builds_dir:
            raise BuildError("the builds_dir is not configured")
        if not cache_dir:
            raise BuildError("the cache_dir is not configured")
        path = PurePosixPath(self.job.project_path)
        unique = PurePosixPath(self.runner.short_token, str(self.project_slot), path) if shared else path
        self.root_dir = builds_dir
        self.project_dir = str(PurePosixPath(builds_dir) / unique)
        self.cache_dir = str(PurePosixPath(cache_dir) / path)

    @property
    def temp_dir(self) -> str:
        """Where scripts keep file variables: beside the project, so that the job's git clean does not reach them."""
        return f"{self.project_dir}.tmp"

    def variables(self) -> list[Variable]:
        """All variables, expanded, in the runner's order; later ones of a key win."""
        return expanded(
            [
                *from_environment(self.runner.environment),
                *self._defaults(),
                *self._tls(),
                *self.job.variables,
                Variable("CI_SHARED_ENVIRONMENT", "true"),
                Variable("CI_RUNNER_SHORT_TOKEN", self.runner.short_token),
                Variable("CI_JOB_SERVICES", self._services(), raw=True),
                *self._image(),
            ]
        )

    def lookup(self, key: str, default: str = "") -> str:
        """The value of one variable."""
        return lookup(self.variables(), key, default)

    def _defaults(self) -> list[Variable]:
        return [
            Variable("CI_BUILDS_DIR", self.root_dir),
            Variable("CI_PROJECT_DIR", self.project_dir),
            Variable("CI_CONCURRENT_ID", str(self.slot)),
            Variable("CI_CONCURRENT_PROJECT_ID", str(self.project_slot)),
            Variable("CI_SERVER", "yes"),
            Variable("CI_JOB_STATUS", self.status),
            Variable("CI_JOB_TIMEOUT", str(self.job.timeout)),
        ]

    def _tls(self) -> list[Variable]:
        if self.runner.tls_ca_file is None:
            return []
        authority = self.runner.tls_ca_file.read_text(encoding="ascii")
        return [Variable("CI_SERVER_TLS_CA_FILE", authority, file=True, raw=True)]

    def _services(self) -> str:
        described = [
            {
                "name": service.get("name"),
                "alias": service.get("alias") or "",
                "entrypoint": service.get("entrypoint"),
                "command": service.get("command"),
                "variables": service.get("variables"),
            }
            for service in self.job.services
        ]
        return json.dumps(described) if described else ""

    def _image(self) -> list[Variable]:
        image = self.job.payload.get("image") or {}
        return [Variable("CI_JOB_IMAGE", str(image["name"]))] if image.get("name") else []
