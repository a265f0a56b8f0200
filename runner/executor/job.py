"""Reads what GitLab Runner says of the job: the response file, and two variables as data.

Who the job belongs to is never taken from ``CUSTOM_ENV_*``: the project's authors can override those (T31).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping

from runner.executor.failures import CallFailed, outage, refused

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""File variables are in it with their content."""

MAX_ID_TOKEN_BYTES = 16 * 1024
MAX_SCHEDULER_PARAMETERS_BYTES = 16 * 1024
MAX_TEXT_CHARACTERS = 16 * 1024
MIN_JOB_TOKEN_CHARACTERS = 8
"""Shorter would not be a secret, and taking it out of a script would maim the script."""


class Job:
    """What the executor knows of the job: ``facts`` for the bridge (fields of JobFacts), and its secrets."""

    __slots__ = ("facts", "id_tokens", "job_token")

    def __init__(self, response: dict[str, object], id_token_name: str) -> None:
        """Take the parsed response; raises KeyError, TypeError or ValueError where it is not GitLab's."""
        info, git, runner = (_section(response, name) for name in ("job_info", "git_info", "runner_info"))
        user_id = info.get("user_id")
        self.facts: dict[str, object] = {
            "job_id": _number(response["id"]),
            "project_id": _number(info["project_id"]),
            "pipeline_id": _number(info["pipeline_id"]),
            "user_id": None if user_id is None else _number(user_id),
            "ref": _text(git["ref"]),
            "sha": _text(git["sha"]),
            "job_name": _text(info["name"]),
            "stage": _text(info["stage"]),
            "project_path": _text(info.get("project_full_path") or info["project_name"]),
            "timeout_seconds": _number(runner["timeout"]),
            "server_url": _server_url(git.get("repo_url"), info.get("project_full_path")),
        }
        self.job_token = _text(response["token"])
        if len(self.job_token) < MIN_JOB_TOKEN_CHARACTERS or not _is_token(self.job_token):
            raise ValueError("token")
        self.id_tokens = _values(response.get("variables"), id_token_name)


def read_job(environ: Mapping[str, str], id_token_name: str) -> Job:
    """Read JOB_RESPONSE_FILE; raises CallFailed (outage ``executor.response_file``)."""
    path = environ.get("JOB_RESPONSE_FILE", "")
    if not path:
        raise _bad_response("JOB_RESPONSE_FILE is not set", "GitLab Runner 14.1 or newer is needed.")
    try:
        return Job(json.loads(_read_file(path)), id_token_name)
    except OSError as error:
        raise _bad_response(f"The job's response file can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _bad_response("The job's response file is not what GitLab Runner writes") from error


def read_id_token(environ: Mapping[str, str], name: str) -> str | None:
    """Take the id_token out of the variable ``name``; None where the project has none. Raises CallFailed."""
    token = environ.get(f"CUSTOM_ENV_{name}", "")
    if not token:
        return None
    if len(token) > MAX_ID_TOKEN_BYTES or not _is_token(token):
        raise refused(
            "executor.bad_id_token",
            f"The variable {name} does not hold an id_token.",
            "Remove whatever else sets this variable in .gitlab-ci.yml or in the project's settings.",
        )
    return token


def read_scheduler_parameters(environ: Mapping[str, str]) -> str:
    """Take SCHEDULER_PARAMETERS as the project wrote it; raises CallFailed where it is no short text."""
    text = environ.get("CUSTOM_ENV_SCHEDULER_PARAMETERS", "")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = MAX_SCHEDULER_PARAMETERS_BYTES + 1
    if size > MAX_SCHEDULER_PARAMETERS_BYTES:
        raise refused(
            "executor.scheduler_parameters",
            f"SCHEDULER_PARAMETERS is not UTF-8 text of at most {MAX_SCHEDULER_PARAMETERS_BYTES} bytes.",
            "Shorten it; it takes sbatch options such as '--nodes=2 --time=10'.",
        )
    return text


def _read_file(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        data = file.read(MAX_RESPONSE_BYTES + 1)
    if len(data) > MAX_RESPONSE_BYTES:
        raise ValueError("too long")
    return data


def _bad_response(title: str, remedy: str = "Ask the runner's administrator.") -> CallFailed:
    return outage("executor.response_file", f"{title.rstrip('.')}.", remedy)


def _section(response: dict[str, object], name: str) -> dict[str, object]:
    section = response[name]
    if not isinstance(section, dict):
        raise TypeError(name)
    return section


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise TypeError("number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS:
        raise TypeError("text")
    return value


def _server_url(repository: object, path: object) -> str | None:
    """Give GitLab's base URL out of the clone URL that GitLab itself wrote; CI_SERVER_URL could be anybody's."""
    if not isinstance(repository, str) or not isinstance(path, str) or len(repository) > MAX_TEXT_CHARACTERS:
        return None
    scheme, _, rest = repository.partition("://")
    address, ending = rest.rpartition("@")[2], f"/{path}.git"
    if scheme != "https" or not address.endswith(ending):
        return None
    return f"https://{address.removesuffix(ending)}"


def _values(variables: object, key: str) -> list[str]:
    """Give every value that the response has for one variable."""
    rows = variables if isinstance(variables, list) else []
    found = [row.get("value") for row in rows if isinstance(row, dict) and row.get("key") == key]
    texts = [text for text in found if isinstance(text, str) and _is_token(text)]
    return [text for text in texts if len(text) >= MIN_JOB_TOKEN_CHARACTERS]


def _is_token(text: str) -> bool:
    """Tell whether it can be a token: visible ASCII, as it goes into headers and bytes."""
    return text.isascii() and text.isprintable() and " " not in text
