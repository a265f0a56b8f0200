"""Only names of ordinary accounts and plain services pass; T17's corpus does not."""

import itertools
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BridgeError, PolicyRefused, RequestRefused
from bridge.kerberos.targets import NEVER_IMPERSONATED, account_principal, target_principal

REALM = "REALM.TEST"

GOOD = ("alice", "bob", "a", "x1", "jane_doe", "jane-doe", "u" * 32, "ab0-_9")

CONFUSABLES = "аеорсхуіѕԁɡｌａｂℓıſßÅÀ"
"""Cyrillic, full-width, letter-like and case-folding look-alikes of ASCII letters."""

BIDI_AND_INVISIBLE = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200c\u200d\u200e\u200f\ufeff\u00ad\u2060"
)

METACHARACTERS = "@/\\ \t\n\r\0'\"`$;|&<>(){}[]*?!~#%^=+,.:"

CORPUS = sorted(
    {
        "",
        "-",
        "-oProxyCommand=id",
        "--help",
        "0day",
        "Root",
        "ROOT",
        "Alice",
        "user@REALM.TEST",
        "alice@REALM.TEST",
        "alice@",
        "@REALM.TEST",
        "host/login.realm.test",
        "host/login.realm.test@REALM.TEST",
        "krbtgt/REALM.TEST",
        "root/admin",
        "a\\@b",
        "alice\\",
        "alice ",
        " alice",
        "alice\n",
        "alice\0root",
        "..",
        "../root",
        "u" * 33,
        "u" * 10_000,
        "\ud800",
        "\udcc0\udcae",
        "ａlice",
        *(f"ali{c}e" for c in CONFUSABLES),
        *(c + "lice" for c in CONFUSABLES),
        *(f"al{c}ice" for c in BIDI_AND_INVISIBLE),
        *(f"alice{c}" for c in BIDI_AND_INVISIBLE),
        *(f"alice{c}" for c in METACHARACTERS),
        *(f"{c}alice" for c in METACHARACTERS),
        *(f"al{c}ice" for c in METACHARACTERS),
        *(f"{a}{b}" for a, b in itertools.product(METACHARACTERS, string.ascii_lowercase)),
        *(f"{b}{a}" for a, b in itertools.product(METACHARACTERS, string.ascii_lowercase)),
        *(f"user{chr(code)}" for code in range(0x80, 0x600)),
        *(chr(code) for code in range(0x2000, 0x2400)),
    }
)

DENIED = (*sorted(NEVER_IMPERSONATED), "lustre_root", "lustre_mds", "lustre_x", "_apt", "_", "systemd-network")


@pytest.mark.threat("T17")
def test_no_name_of_the_corpus_passes() -> None:
    assert len(CORPUS) > 4000
    for name in CORPUS:
        with pytest.raises(BridgeError):
            account_principal(name, REALM)


@pytest.mark.threat("T17")
@pytest.mark.parametrize("name", GOOD)
def test_ordinary_names_become_principals(name: str) -> None:
    assert account_principal(name, REALM) == f"{name}@REALM.TEST"


@pytest.mark.threat("T18")
@pytest.mark.parametrize("name", DENIED)
def test_privileged_names_are_refused_by_policy(name: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        account_principal(name, REALM)
    assert caught.value.code == "kerberos.account_denied"


@pytest.mark.threat("T17")
@given(st.text(max_size=40))
def test_what_passes_is_plain(name: str) -> None:
    try:
        principal = account_principal(name, REALM)
    except BridgeError:
        return
    assert re.fullmatch(r"[a-z][a-z0-9_-]{0,31}@REALM\.TEST", principal, re.ASCII)


@pytest.mark.parametrize(
    "target", ["host/login.example.org", "lustre_mds/mds1.realm.test", "nfs/nas", "HTTP/a-b.c", "host/x1.y2.z3"]
)
def test_plain_services_become_principals(target: str) -> None:
    assert target_principal(target, REALM) == f"{target}@REALM.TEST"


@pytest.mark.parametrize(
    "target",
    [
        "",
        "host",
        "host/",
        "/host",
        "host/a/b",
        "krbtgt/REALM.TEST",
        "krbtgt/realm.test",
        "KRBTGT/realm.test",
        "kadmin/admin",
        "kadmin/changepw",
        "kiprop/kdc.realm.test",
        "K/M",
        "host/Login.realm.test",
        "host/-x",
        "host/x-",
        "host/a..b",
        "host/.a",
        "host/a.",
        "host/a b",
        "host/a@REALM",
        "host/a\\@b",
        "host/a\n",
        "ho st/a",
        "1host/a",
        "host/" + "a" * 64,
        "host/" + ".".join(["a" * 60] * 5),
        "höst/a",
        "host/ä",
    ],
)
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        target_principal(target, REALM)
    assert caught.value.code == "kerberos.target_malformed"


@pytest.mark.parametrize("realm", ["", "realm.test", "R@X", "R/X", "R X", "R\\X", "-R", "R\n", "R\0"])
def test_an_odd_realm_is_refused(realm: str) -> None:
    with pytest.raises(RequestRefused):
        account_principal("alice", realm)
    with pytest.raises(RequestRefused):
        target_principal("host/a", realm)
