"""What ldapsearch prints is read as it is meant, and what is not there is said without a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.doctor.directory import escaped
from bridge.doctor.ldapread import NotRead, Source, parse_ldif

LDIF = """\
dn: krbPrincipalName=a/b@R,cn=R,dc=x
krbPrincipalName: a/b@R
krbTicketFlags: 2
krbAllowedToDelegateTo: host/one@R
krbAllowedToDelegateTo:: aG9zdC90d28gQFI=

# pagedresults: cookie=

dn: krbPrincipalName=c@R,dc=x
krbTicketFlags: 0
"""


def test_entries_values_and_base64_are_read_and_comments_are_not() -> None:
    first, second = parse_ldif(LDIF)
    assert first["krballowedtodelegateto"] == ("host/one@R", "host/two @R")
    assert first["krbticketflags"] == ("2",)
    assert second["dn"] == ("krbPrincipalName=c@R,dc=x",)


@pytest.mark.parametrize("text", ["", "\n\n\n", "# nothing\n"])
def test_nothing_is_no_entry(text: str) -> None:
    assert list(parse_ldif(text)) == []


@pytest.mark.parametrize(
    ("value", "filtered"),
    [("a/b@R", "a/b@R"), ("*", "\\2a"), ("a)(b=*", "a\\29\\28b=\\2a"), ("\\", "\\5c"), ("\0", "\\00")],
)
def test_a_name_does_not_become_a_filter(value: str, filtered: str) -> None:
    assert escaped(value) == filtered


def test_a_site_without_ldap_utils_is_told_so() -> None:
    with pytest.raises(NotRead, match="/nonexistent/ldapsearch can't be run"):
        Source("ldapi:///", "dc=x", program="/nonexistent/ldapsearch").search("(a=b)", ["a"])


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(NotRead, match="Can't contact LDAP server"):
        Source("ldapi://%2Fnonexistent", "dc=x").search("(a=b)", ["a"])


ECHO = '#!/bin/sh\necho "dn: $*"\nenv\n'


@pytest.fixture
def echo(tmp_path: Path) -> str:
    """A program in the place of ldapsearch that shows how it was called."""
    path = tmp_path / "echo"
    path.write_text(ECHO)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("url", "bind", "wanted", "never"),
    [
        ("ldapi:///", "", "-Q -Y EXTERNAL", "-x"),
        ("ldap://h", "cn=r", "-x -ZZ -D cn=r -y /p", "EXTERNAL"),
        ("ldaps://h", "cn=r", "-x -D cn=r -y /p", "-ZZ"),
    ],
)
@pytest.mark.threat("T46")
def test_a_password_goes_neither_unencrypted_nor_onto_the_command_line(
    echo: str, url: str, bind: str, wanted: str, never: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", "FILE:/somebody")
    (entry,) = Source(url, "dc=x", bind, Path("/p"), program=echo).search("(a=b)", ["a"])
    assert f"{wanted} -E pr=500/noprompt -b dc=x -s sub (a=b) a" in entry["dn"][0]
    assert never not in entry["dn"][0].split()
    assert "KRB5CCNAME" not in str(entry)
