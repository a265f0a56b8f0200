"""The script of every stage, or None for a stage that has nothing to do and is therefore never called."""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from realm.runner.build import Build
from realm.runner.shell import YELLOW, BashScript
from realm.runner.sources import clear_worktree, get_sources

HELPER = "gitlab-runner"
"""Artifacts and caches are moved by this program on the machine where the script runs."""


def prepare_script(build: Build) -> str | None:
    """Says where the job runs."""
    script = BashScript(build)
    script.raw(f'echo "Running on $(hostname) via {build.runner.name or "runner"}..."')
    return script.text()


def restore_cache(build: Build) -> str | None:
    """Unpacks caches whose policy pulls."""
    wanted = [cache for cache in build.job.caches if "pull" in (cache.get("policy") or "pull-push")]
    if not wanted:
        return None
    script = _in_project(build)
    with_helper = _Helper(script, "Extracting cache")
    for cache in wanted:
        script.say(f"Checking cache for {cache['key']}...")
        with_helper.run("cache-extractor", "--file", _cache_file(build, cache), "--timeout", "10", may_fail=True)
    return script.text()


def download_artifacts(build: Build) -> str | None:
    """Fetches the archives of the jobs that this one depends on; the job token comes from the environment."""
    if not build.job.dependencies:
        return None
    script = _in_project(build)
    helper = _Helper(script, "Artifacts downloading")
    for dependency in build.job.dependencies:
        script.say(f"Downloading artifacts for {dependency['name']} ({dependency['id']})...")
        helper.run("artifacts-downloader", "--url", build.runner.url, "--id", str(dependency["id"]))
    return script.text()


def user_step(build: Build, step: Mapping[str, Any]) -> str | None:
    """A step of the job's own: before_script and script, after_script, or release."""
    if not step.get("script"):
        return None
    script = _in_project(build)
    if step["name"] == "after_script":
        script.say("Running after script...")
    for text in step["script"]:
        script.user_command(str(text))
    return script.text()


def archive_cache(build: Build, *, succeeded: bool) -> str | None:
    """Packs caches whose policy pushes, by their `when`."""
    wanted = [
        cache
        for cache in build.job.caches
        if "push" in (cache.get("policy") or "pull-push") and _applies(cache, succeeded=succeeded)
    ]
    if not wanted:
        return None
    script = _in_project(build)
    helper = _Helper(script, "Creating cache")
    for cache in wanted:
        script.say(f"Creating cache {cache['key']}...")
        paths = [word for path in cache.get("paths") or [] for word in ("--path", str(path))]
        helper.run("cache-archiver", "--file", _cache_file(build, cache), "--timeout", "10", *paths, may_fail=True)
    return script.text()


def upload_artifacts(build: Build, *, succeeded: bool) -> str | None:
    """Uploads the artifacts whose `when` fits the job's state."""
    wanted = [item for item in build.job.artifacts if _applies(item, succeeded=succeeded)]
    if not wanted:
        return None
    script = _in_project(build)
    helper = _Helper(script, "Uploading artifacts")
    for item in wanted:
        script.say("Uploading artifacts...")
        helper.run("artifacts-uploader", "--url", build.runner.url, "--id", str(build.job.id), *_upload_flags(item))
    return script.text()


def cleanup_file_variables(build: Build) -> str | None:
    """Removes the files of file variables."""
    script = BashScript(build)
    script.raw("cd /")
    script.command("rm", "-rf", "--", build.temp_dir)
    return script.text()


PREDEFINED: Mapping[str, Callable[[Build], str | None]] = {
    "prepare_script": prepare_script,
    "get_sources": get_sources,
    "clear_worktree": clear_worktree,
    "restore_cache": restore_cache,
    "download_artifacts": download_artifacts,
    "cleanup_file_variables": cleanup_file_variables,
}


class _Helper:
    """Calls of the helper program, with the runner's words when the machine lacks it."""

    def __init__(self, script: BashScript, what: str) -> None:
        self._script = script
        self._what = what

    def run(self, *words: str, may_fail: bool = False) -> None:
        self._script.raw(f"if {HELPER} --version >/dev/null 2>&1; then")
        if may_fail:
            self._script.raw("if")
        self._script.command(HELPER, *words)
        if may_fail:
            self._script.raw("then :; else")
            self._script.say(f"Failed: {self._what.lower()}", YELLOW)
            self._script.raw("fi")
        self._script.raw("else")
        self._script.say(f"Missing {HELPER}. {self._what} is disabled.", YELLOW)
        self._script.raw("fi")


def _in_project(build: Build) -> BashScript:
    script = BashScript(build)
    script.command("cd", build.project_dir)
    return script


def _applies(item: Mapping[str, Any], *, succeeded: bool) -> bool:
    when = item.get("when") or "on_success"
    return when == "always" or when == ("on_success" if succeeded else "on_failure")


def _cache_file(build: Build, cache: Mapping[str, Any]) -> str:
    key = str(cache["key"]).replace("/", "%2F")
    return str(PurePosixPath(build.cache_dir) / key / "cache.zip")


def _upload_flags(item: Mapping[str, Any]) -> list[str]:
    flags = [word for path in item.get("paths") or [] for word in ("--path", str(path))]
    flags += [word for path in item.get("exclude") or [] for word in ("--exclude", str(path))]
    for key, flag in (
        ("name", "--name"),
        ("expire_in", "--expire-in"),
        ("artifact_format", "--artifact-format"),
        ("artifact_type", "--artifact-type"),
    ):
        if item.get(key):
            flags += [flag, str(item[key])]
    return flags
