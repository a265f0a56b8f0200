"""Who the login agent runs as, and the clean environment in which it starts programs."""

from __future__ import annotations

import os
import pwd

from runner.login.failures import VerbFailed

LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin"


class User:
    """The account that the agent runs as, from the system's account data and never from the environment."""

    __slots__ = ("gid", "home", "name", "shell", "uid")

    def __init__(self) -> None:
        """Look up the real uid; raises VerbFailed where it has no account or could be root."""
        self.uid, self.gid = os.getuid(), os.getgid()
        if 0 in (self.uid, os.geteuid(), *os.getresuid()):
            raise VerbFailed("agent.root", "The login agent does not run as root.", "Log in as the user.")
        try:
            entry = pwd.getpwuid(self.uid)
        except KeyError as error:
            raise VerbFailed(
                "agent.no_account", f"uid {self.uid} has no account here.", "Check the login node's directory service."
            ) from error
        self.name, self.home, self.shell = entry.pw_name, entry.pw_dir, entry.pw_shell or "/bin/sh"

    def environment(self) -> dict[str, str]:
        """Give a login's basic environment; nothing of what sshd or the client set goes through, nor KRB5CCNAME."""
        return {
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "LOGNAME": self.name,
            "PATH": LOGIN_PATH,
            "SHELL": self.shell,
            "USER": self.name,
        }
