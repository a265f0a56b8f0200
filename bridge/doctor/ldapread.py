"""Reads entries of a directory with ldapsearch(1), from Debian's ldap-utils, where the caller names an address.

A program of its own and not a library: the bridge needs LDAP for nothing else, and this check is one that a site may
leave out. It is started without a shell, with an empty environment; a password stays in its file (``-y``).
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAM: Final = "/usr/bin/ldapsearch"

_WAIT_SECONDS: Final = 60
_NO_SUCH_OBJECT: Final = 32
_MOST_BYTES: Final = 64 << 20

Entry = Mapping[str, tuple[str, ...]]
"""Attribute name in lower case -> values; ``dn`` is one of them."""


class NotRead(Exception):
    """The directory could not be read; the text says why, and holds no secret."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the KDC's database can be read, and as whom."""

    url: str
    """``ldapi:///`` (as root on the KDC, by its socket), ``ldaps://host`` or ``ldap://host`` (then with StartTLS)."""
    base: str = ""
    """DN below which to search; empty for the server's first naming context."""
    bind_dn: str = ""
    """A reader's DN, with ``password_file``; empty for SASL EXTERNAL, which is who we are on the socket."""
    password_file: Path | None = None
    """Holds the password and no line end (ldapsearch(1), -y)."""
    program: str = PROGRAM

    def search(self, text_filter: str, attributes: Sequence[str]) -> tuple[Entry, ...]:
        """Give the entries below ``base`` that match an RFC 4515 filter; raises NotRead."""
        base = self.base or self._naming_context()
        paged = ("-E", "pr=500/noprompt")
        return tuple(parse_ldif(self._run((*paged, "-b", base, "-s", "sub", text_filter, *attributes))))

    def _naming_context(self) -> str:
        found = tuple(parse_ldif(self._run(("-b", "", "-s", "base", "(objectClass=*)", "namingContexts"))))
        contexts = found[0].get("namingcontexts", ()) if found else ()
        if not contexts:
            raise NotRead("the server names no naming context to this reader")
        return contexts[0]

    def _run(self, what: tuple[str, ...]) -> str:
        argv = [self.program, "-LLL", "-o", "ldif-wrap=no", "-o", "nettimeout=5", "-H", self.url, *self._who(), *what]
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=_WAIT_SECONDS, check=False, env={"LANG": "C.UTF-8"}
            )
        except OSError as error:
            raise NotRead(f"{self.program} can't be run: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise NotRead(f"no answer in {_WAIT_SECONDS} s") from None
        if done.returncode == _NO_SUCH_OBJECT:
            return ""
        if done.returncode != 0:
            raise NotRead(" ".join(done.stderr.decode(errors="replace").split())[:300])
        if len(done.stdout) > _MOST_BYTES:
            raise NotRead("the answer is too long")
        return done.stdout.decode(errors="replace")

    def _who(self) -> tuple[str, ...]:
        if not self.bind_dn:
            return ("-Q", "-Y", "EXTERNAL")
        password = ("-y", str(self.password_file)) if self.password_file else ()
        tls = ("-ZZ",) if self.url.startswith("ldap://") else ()
        return ("-x", *tls, "-D", self.bind_dn, *password)


def parse_ldif(text: str) -> Iterator[Entry]:
    """The entries of ldapsearch's LDIF (RFC 2849) with unfolded lines; comments are left out."""
    entry: dict[str, tuple[str, ...]] = {}
    for line in [*text.splitlines(), ""]:
        if not line:
            if entry:
                yield entry
            entry = {}
        elif not line.startswith("#"):
            name, _, value = line.partition(":")
            if value.startswith(":"):
                value = base64.b64decode(value[1:]).decode(errors="replace")
            entry[name.lower()] = (*entry.get(name.lower(), ()), value.strip())
