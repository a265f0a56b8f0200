"""Bare git repositories on disk, one per project, handled with the git program."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

GIT_TIMEOUT_SECONDS = 30


class GitError(RuntimeError):
    """A git command that failed, with its own words."""


@dataclass(frozen=True)
class Commit:
    """What the API tells about a commit; the date is ISO 8601."""

    sha: str
    parents: tuple[str, ...]
    title: str
    message: str
    author_name: str
    author_email: str
    authored_date: str


@dataclass(frozen=True)
class Repositories:
    """A folder of bare repositories named by project id, so that renames and odd paths do not matter."""

    root: Path

    def path(self, project_id: int) -> Path:
        """The bare repository of a project."""
        return self.root / f"{project_id}.git"

    def create(self, project_id: int, branch: str, files: Mapping[str, str], author: tuple[str, str]) -> str:
        """Initialise a repository, commit `files` (path to text) on `branch`, and return the commit's sha."""
        _git("init", "--quiet", "--bare", f"--initial-branch={branch}", str(self.path(project_id)))
        return self.commit(project_id, branch, files, author, "Initial commit")

    def fork(self, project_id: int, from_id: int) -> None:
        """Copy another project's repository."""
        _git("clone", "--quiet", "--bare", "--no-hardlinks", str(self.path(from_id)), str(self.path(project_id)))

    def commit(
        self, project_id: int, branch: str, files: Mapping[str, str], author: tuple[str, str], message: str
    ) -> str:
        """Add one commit with `files` changed on top of `branch` (made from the default branch if new).

        A file that begins with `#!` becomes executable.
        """
        heads = self.heads(project_id)
        wanted = (f"refs/heads/{branch}", self._in(project_id, "symbolic-ref", "HEAD").strip())
        parent = next((heads[name] for name in wanted if name in heads), None)
        stream = _import_stream(wanted[0], parent, files, author, message)
        _git("--git-dir", str(self.path(project_id)), "fast-import", "--quiet", stdin=stream)
        return self._in(project_id, "rev-parse", wanted[0]).strip()

    def resolve(self, project_id: int, ref: str) -> tuple[str, str] | None:
        """(`branch` or `tag`, commit sha) of a short ref name, or None; a branch wins over a tag."""
        for kind, prefix in (("branch", "refs/heads/"), ("tag", "refs/tags/")):
            try:
                sha = self._in(project_id, "rev-parse", "--verify", "--quiet", f"{prefix}{ref}^{{commit}}").strip()
            except GitError:
                continue
            return kind, sha
        return None

    def read(self, project_id: int, sha: str, name: str) -> str | None:
        """The text of a file at a commit, or None."""
        try:
            return self._in(project_id, "show", f"{sha}:{name}")
        except GitError:
            return None

    def commit_info(self, project_id: int, sha: str) -> Commit:
        """Read a commit's header."""
        return _commit(self.path(project_id), sha)

    def set_ref(self, project_id: int, name: str, sha: str) -> None:
        """Point a full ref name at a commit, such as `refs/pipelines/7`."""
        self._in(project_id, "update-ref", name, sha)

    def fetch_from(self, project_id: int, other_id: int, sha: str, name: str) -> None:
        """Bring a commit of another project in under a full ref name, as merge requests from forks do."""
        self._in(project_id, "fetch", "--quiet", str(self.path(other_id)), f"+{sha}:{name}")

    def heads(self, project_id: int) -> dict[str, str]:
        """Full names of branches and tags with their object ids."""
        lines = self._in(project_id, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
        return dict(line.split(" ", 1) for line in lines.splitlines())

    def _in(self, project_id: int, *arguments: str) -> str:
        return _git("--git-dir", str(self.path(project_id)), *arguments)


@lru_cache(maxsize=1024)
def _commit(repository: Path, sha: str) -> Commit:
    # A commit never changes, and `GET /job` shows it on each call.
    pretty = "--format=%H%x00%P%x00%s%x00%B%x00%an%x00%ae%x00%aI"
    fields = _git("--git-dir", str(repository), "show", "--no-patch", pretty, sha)
    full, parents, title, message, name, email, date = fields.rstrip("\n").split("\0")
    return Commit(full, tuple(parents.split()), title, message, name, email, date)


def clean_environment() -> dict[str, str]:
    """An environment in which git reads no configuration of the machine or the user and never asks."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
        # A runner may fetch a commit by its id, and the bare folder may belong to another user.
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
    }


def _import_stream(
    ref: str, parent: str | None, files: Mapping[str, str], author: tuple[str, str], message: str
) -> bytes:
    """One commit in the language of git-fast-import(1)."""
    name, email = (text.translate({ord(char): None for char in "<>\n"}) for text in author)
    lines = [f"commit {ref}\n".encode(), f"committer {name} <{email}> {int(time.time())} +0000\n".encode()]
    lines.append(_data(message))
    if parent is not None:
        lines.append(f"from {parent}\n".encode())
    for path, text in files.items():
        mode = "100755" if text.startswith("#!") else "100644"
        lines += [f"M {mode} inline {json.dumps(path, ensure_ascii=False)}\n".encode(), _data(text)]
    return b"".join(lines)


def _data(text: str) -> bytes:
    raw = text.encode()
    return b"data %d\n%s\n" % (len(raw), raw)


def _git(*arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", *arguments],
        env=clean_environment(),
        input=stdin,
        capture_output=True,
        timeout=GIT_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise GitError(done.stderr.decode(errors="replace").strip() or f"git ended with {done.returncode}")
    return done.stdout.decode(errors="replace")
