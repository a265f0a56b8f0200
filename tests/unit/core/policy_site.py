"""A site with people who may propose, approve and operate, for tests of how policy comes into force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench import POLICIES, Broker

from bridge.people.caller import Caller, Method
from bridge.policy.files import read_files
from bridge.policy.roles import Role
from bridge.proposals import Activation, Proposal

PEOPLE = {
    "ada/admin": "author",
    "eve/admin": "author approver",
    "ben/admin": "approver",
    "cyd/admin": "approver",
    "olga/admin": "operator",
    "omar/admin": "operator",
    "vic": "viewer",
}
LOCKED_OUT = '[[member]]\nprincipal = "olga/admin@REALM.TEST"\nroles = ["operator"]\n'


def roles(people: Mapping[str, str] = PEOPLE) -> str:
    """A roles.toml."""
    return "".join(
        f'[[member]]\nprincipal = "{name}@REALM.TEST"\nroles = [{", ".join(map(repr, has.split()))}]\n'.replace(
            "'", '"'
        )
        for name, has in people.items()
    )


def texts(mark: str = "", **files: str) -> dict[str, str]:
    """The shipped policies with the site's roles, and a remark that makes them others; ``files`` replace files."""
    every = {**read_files(POLICIES), "roles.toml": roles()}
    every |= {f"{name}.toml": text for name, text in files.items()}
    return {**every, "limits.toml": f"# {mark}\n{every['limits.toml']}"} if mark else every


def without_alice() -> dict[str, str]:
    """Policies by which alice has no account any more."""
    every = texts("without alice")
    rows = every["accounts.toml"].split("[[account]]")
    kept = [row for row in rows if 'account = "alice"' not in row]
    cases = {name: "" for name in every if name.startswith("cases/")}
    return {name: text for name, text in every.items() if name not in cases} | {
        "accounts.toml": "[[account]]".join(kept)
    }


def who(broker: Broker, name: str) -> Caller:
    """Somebody with a ticket."""
    return broker.caller(f"{name}@REALM.TEST")


def by_token(broker: Broker, name: str, *has: Role) -> Caller:
    """A program with an API token of somebody, which is good for some of their roles."""
    caller = who(broker, name)
    return replace(caller, method=Method.API_TOKEN, roles=caller.roles & set(has or Role))


def draft(broker: Broker, files: Mapping[str, str] | None = None, author: str = "ada/admin") -> Proposal:
    """A proposal as its author keeps it first."""
    return broker.proposing.propose(who(broker, author), "more nodes", texts("one") if files is None else files)


def submitted(broker: Broker, files: Mapping[str, str] | None = None, author: str = "ada/admin") -> Proposal:
    """One that the approvers see."""
    one = draft(broker, files, author)
    return broker.proposing.submit(who(broker, author), one.proposal_id, one.version)


def approve(broker: Broker, one: Proposal, approver: str = "ben/admin") -> Proposal:
    """Have somebody approve what they read."""
    return broker.proposing.decide(
        who(broker, approver), one.proposal_id, one.version, one.content_hash, approve=True, reason="read it"
    )


def approved(broker: Broker, files: Mapping[str, str] | None = None, author: str = "ada/admin") -> Proposal:
    """One that somebody else approved."""
    return approve(broker, submitted(broker, files, author))


def activate(broker: Broker, one: Proposal, by: str = "olga/admin") -> Activation:
    """Put it in force."""
    return broker.activating.activate(who(broker, by), one.proposal_id, one.version, "as agreed")


def in_force(broker: Broker, files: Mapping[str, str]) -> Activation:
    """The whole way."""
    return activate(broker, approved(broker, files))


def emergency(broker: Broker, files: Mapping[str, str], minutes: int = 60) -> Activation:
    """Two operators agree."""
    asked = broker.activating.break_glass(who(broker, "olga/admin"), minutes, "the lab is on fire", files=files)
    return broker.activating.confirm(who(broker, "omar/admin"), asked.number, asked.content_hash)


def hash_now(broker: Broker) -> str:
    """Of the bundle that decides."""
    return broker.active.now().content_hash
