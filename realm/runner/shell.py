"""Writes bash scripts of the runner's shape: exported variables, then commands up to the first error."""

import re
import shlex
from pathlib import PurePosixPath

from realm.runner.build import Build

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GREEN = "\x1b[32;1m"
YELLOW = "\x1b[33;1m"
RESET = "\x1b[0;m"


class BashScript:
    """A script under construction for one build."""

    def __init__(self, build: Build) -> None:
        self._lines: list[str] = []
        self._export_variables(build)

    def command(self, *words: str, silent: bool = False) -> None:
        """One command, each word quoted."""
        line = " ".join(shlex.quote(word) for word in words)
        self._lines.append(f"{line} >/dev/null 2>&1" if silent else line)

    def raw(self, line: str) -> None:
        """A line of bash as it is."""
        self._lines.append(line)

    def say(self, text: str, colour: str = GREEN) -> None:
        """Print a line."""
        self._lines.append(f"printf '%s\\n' {shlex.quote(f'{colour}{text}{RESET}')}")

    def export(self, name: str, value: str) -> None:
        """Set and export a variable."""
        self._lines.append(f"export {name}={shlex.quote(value)}")

    def user_command(self, text: str) -> None:
        """Echo a user's command as the runner does, then run it."""
        first, *rest = text.split("\n")
        shown = f"{first} # collapsed multi-line command" if any(line.strip() for line in rest) else first
        self.say(f"$ {shown}")
        self._lines.append(text)

    def text(self) -> str:
        """The whole script. Standard input of the commands is empty, and nothing after them can fail."""
        body = shlex.quote("\n".join([*self._lines, ""]))
        return f"#!/usr/bin/env bash\n\nset -eo pipefail\nset +o noclobber\n: | eval {body}\nexit 0\n"

    def _export_variables(self, build: Build) -> None:
        last = {variable.key: variable for variable in build.variables()}
        files = [variable for variable in last.values() if variable.file]
        if files:
            self._lines.append(f"mkdir -p -m 0700 {shlex.quote(build.temp_dir)}")
        for variable in last.values():
            if not _NAME.fullmatch(variable.key):
                # bash can not hold such a name; the runner's own script would stop here with an error.
                self.say(f"WARNING: variable {variable.key!r} has no valid name and is not exported", YELLOW)
            elif variable.file:
                path = file_variable_path(build, variable.key)
                self._lines.append(f"(umask 077; printf %s {shlex.quote(variable.value)} >{shlex.quote(path)})")
                self.export(variable.key, path)
            else:
                self.export(variable.key, variable.value)


def file_variable_path(build: Build, key: str) -> str:
    """Where a file variable's content is written on the machine that runs the scripts."""
    return str(PurePosixPath(build.temp_dir) / key)
