"""Rows and accounts: who is mapped (T11), what names may be (T17), and who is never impersonated (T18)."""

import pwd
from dataclasses import replace
from datetime import date

import pytest
from policy_examples import ALICE, ISSUER, identity, resolve

from bridge.errors import BridgeError, Outage, PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.bundle import Bundle
from bridge.policy.directory import Directory, NssDirectory, account_unknown

TODAY = date(2026, 11, 18)


class Fixed:
    """A directory with these accounts and no others."""

    def __init__(self, *accounts: PosixAccount) -> None:
        self.accounts = {account.name: account for account in accounts}
        self.asked: list[str] = []

    def lookup(self, name: str) -> PosixAccount:
        self.asked.append(name)
        if name not in self.accounts:
            raise account_unknown(name)
        return self.accounts[name]


def code(bundle: Bundle, directory: Directory, user_id: int, issuer: str = ISSUER) -> str:
    """Of the refusal; every one has a remedy."""
    with pytest.raises(PolicyRefused) as caught:
        resolve(bundle.accounts, directory, identity(issuer=issuer, user_id=user_id), TODAY)
    assert caught.value.remedy
    return caught.value.code


def test_a_row_leads_to_the_account_as_it_is_now(bundle: Bundle) -> None:
    directory = Fixed(ALICE)
    assert resolve(bundle.accounts, directory, identity(), TODAY) == ALICE
    directory.accounts["alice"] = replace(ALICE, groups=("chem", "gpu"))
    assert resolve(bundle.accounts, directory, identity(), TODAY).groups == ("chem", "gpu")
    assert directory.asked == ["alice", "alice"]


@pytest.mark.threat("T11")
@pytest.mark.parametrize(
    ("user_id", "issuer"), [(103, ISSUER), (0, ISSUER), (101, ISSUER + "/"), (101, ISSUER.upper()), (1010, ISSUER)]
)
def test_users_without_a_row_are_refused_before_the_directory_is_asked(
    bundle: Bundle, user_id: int, issuer: str
) -> None:
    directory = Fixed(ALICE)
    assert code(bundle, directory, user_id, issuer) == "account.not_mapped"
    assert directory.asked == []


@pytest.mark.threat("T11")
def test_an_account_that_was_given_away_is_refused(bundle: Bundle) -> None:
    assert code(bundle, Fixed(replace(ALICE, uid=20009)), 101) == "account.uid_changed"
    assert code(bundle, Fixed(), 101) == "account.unknown"


@pytest.mark.threat("T17")
@pytest.mark.parametrize("name", ["Alice", "alice@REALM.TEST", "\u0430lice", "root", "alice "])
def test_a_directory_that_answers_with_another_name_is_refused(bundle: Bundle, name: str) -> None:
    directory = Fixed()
    directory.accounts["alice"] = replace(ALICE, name=name)
    assert code(bundle, directory, 101) == "account.unknown"


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    "account",
    [
        replace(ALICE, groups=("chem", "sudo")),
        replace(ALICE, groups=("docker",)),
        replace(ALICE, gid=0),
    ],
    ids=str,
)
def test_accounts_with_power_are_refused(bundle: Bundle, account: PosixAccount) -> None:
    assert code(bundle, Fixed(account), 101) == "account.privileged"


@pytest.mark.threat("T18")
def test_a_row_to_root_is_refused_by_the_floor(bundle: Bundle) -> None:
    root = PosixAccount("root", 0, 0, ("root",), "/root", "/bin/bash")
    assert code(bundle, Fixed(root), 105) == "account.privileged"


@pytest.mark.threat("T18")
def test_the_floor_and_the_denied_names_hold_each_on_its_own(bundle: Bundle) -> None:
    root = PosixAccount("root", 0, 1000, ("chem",), "/root", "/bin/bash")
    rules = bundle.accounts
    for weakened in (replace(rules, floor_uid=0), replace(rules, denied_users=frozenset())):
        with pytest.raises(PolicyRefused) as caught:
            resolve(weakened, Fixed(root), identity(user_id=105), TODAY)
        assert caught.value.code == "account.privileged"


@pytest.mark.threat("T18")
@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false", "/bin/sync"])
def test_closed_accounts_are_refused(bundle: Bundle, shell: str) -> None:
    assert code(bundle, Fixed(replace(ALICE, shell=shell)), 101) == "account.no_shell"


def test_the_system_directory_knows_this_machines_accounts() -> None:
    entry = pwd.getpwuid(0)
    account = NssDirectory().lookup(entry.pw_name)
    assert (account.uid, account.gid, account.home) == (0, entry.pw_gid, entry.pw_dir)
    assert account.groups[0] == "root"


def test_the_system_directory_refuses_accounts_that_it_does_not_know() -> None:
    for name in ("no-such-account-here", "", "a\u0000b"):
        with pytest.raises(BridgeError) as caught:
            NssDirectory().lookup(name)
        assert caught.value.code in {"account.unknown", "directory.unreachable"}


@pytest.mark.threat("T18")
def test_groups_that_can_not_be_named_are_an_outage_and_not_a_shorter_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(gid: int) -> object:
        raise KeyError(gid)

    monkeypatch.setattr("grp.getgrgid", lost)
    with pytest.raises(Outage) as caught:
        NssDirectory().lookup("root")
    assert caught.value.code == "directory.unreachable"
