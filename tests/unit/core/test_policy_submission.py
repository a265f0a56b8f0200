"""No bundle is submitted that is broken, locks everybody out, or takes back what others changed."""

from __future__ import annotations

from functools import partial

import pytest
from bench import Broker, refused
from policy_site import (
    LOCKED_OUT,
    activate,
    approve,
    draft,
    hash_now,
    in_force,
    roles,
    texts,
    who,
)
from policy_steps import floor, rewrite, with_people

from bridge.errors import Conflict
from bridge.people.bundling import MAX_BUNDLE_BYTES
from bridge.people.policies import MAX_OPEN


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The site, with the directory's bundle in force."""
    return with_people(broker)


def alone(**people: str) -> dict[str, str]:
    """Policies with these people only."""
    return texts("alone", roles=roles({name.replace("_", "/"): has for name, has in people.items()}))


CASE = texts()["cases/people.toml"]


NO_GOOD: dict[str, tuple[dict[str, str], str]] = {
    "nobody could change": (texts(roles=LOCKED_OUT), "policy.lock_out"),
    "nobody has a role in": (texts(roles=""), "policy.lock_out"),
    "one person alone could change": (alone(eve_admin="author approver"), "policy.lock_out"),
    "one person with two principals could change": (alone(eve_admin="author", eve="approver"), "policy.lock_out"),
    "nobody approves": (alone(ada="author", eve="author"), "policy.lock_out"),
    "takes everybody for a person": (floor(1), "policy.privileged"),
    "takes services for people": (floor(499), "policy.privileged"),
    "fails its own cases": (
        texts() | {"cases/people.toml": CASE.replace('"allowed"', '"policy.no_permit"', 1)},
        "policy.cases_failed",
    ),
    "is not TOML": (texts() | {"limits.toml": "[["}, "policy.invalid"),
    "lacks a file": ({name: one for name, one in texts().items() if name != "accounts.toml"}, "policy.invalid"),
    "lacks its schema": ({name: one for name, one in texts().items() if "schema" not in name}, "policy.invalid"),
    "is empty": ({}, "policy.invalid"),
    "is nested without end": (texts() | {"limits.toml": "a = " + "[" * 50_000}, "policy.invalid"),
}


@pytest.mark.threat("T40")
@pytest.mark.threat("T18")
@pytest.mark.parametrize(("files", "code"), NO_GOOD.values(), ids=NO_GOOD.keys())
def test_nobody_submits_a_bundle_that(broker: Broker, files: dict[str, str], code: str) -> None:
    one = draft(broker, files)
    assert refused(lambda: broker.proposing.submit(who(broker, "ada/admin"), one.proposal_id, 1)).code == code
    assert broker.register.read().proposals == (one,)


NO_FILES: dict[str, tuple[dict[str, str], str]] = {
    "../limits.toml": ({"../limits.toml": ""}, "policy.file_name"),
    "/etc/passwd": ({"/etc/passwd": ""}, "policy.file_name"),
    "cases/../../x.toml": ({"cases/../../x.toml": ""}, "policy.file_name"),
    "a folder of cedar": ({"more/x.cedar": ""}, "policy.file_name"),
    "a README": ({"README.md": ""}, "policy.file_name"),
    "a hidden file": ({".cedar": ""}, "policy.file_name"),
    "a line in the name": ({"x\n.cedar": ""}, "policy.file_name"),
    "a name that shows as another": ({"p\u0435ople.cedar": ""}, "policy.file_name"),
    "no name": ({"": ""}, "policy.file_name"),
    "text that runs backwards": ({"people.cedar": "permit \u202e"}, "policy.characters"),
    "text that does not show": ({"people.cedar": "per\u200bmit"}, "policy.characters"),
    "a carriage return": ({"people.cedar": "// forbid\rpermit"}, "policy.characters"),
    "a null": ({"people.cedar": "\0"}, "policy.characters"),
    "an escape": ({"people.cedar": "\x1b[2K"}, "policy.characters"),
    "half a character": ({"people.cedar": "\ud800"}, "policy.characters"),
    "another end of line": ({"people.cedar": "// forbid\u2028permit"}, "policy.characters"),
    "too much": ({"people.cedar": "a" * (MAX_BUNDLE_BYTES + 1)}, "policy.too_large"),
    "too many": ({f"p{n}.cedar": "" for n in range(201)}, "policy.too_large"),
}


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("files", "code"), NO_FILES.values(), ids=NO_FILES.keys())
@pytest.mark.parametrize("how", ["propose", "rewrite", "break glass"])
def test_no_bundle_has(broker: Broker, files: dict[str, str], code: str, how: str) -> None:
    one = draft(broker) if how == "rewrite" else None

    def act() -> object:
        if one is not None:
            return rewrite(broker, one, texts() | files)
        if how == "propose":
            return draft(broker, texts() | files)
        return broker.activating.break_glass(who(broker, "olga/admin"), 5, "now", files=texts() | files)

    assert refused(act).code == code
    assert broker.register.read().activations == ()


def test_lines_that_end_otherwise_are_the_same_bundle(broker: Broker) -> None:
    windows = {name: one.replace("\n", "\r\n") for name, one in texts("one").items()}
    assert draft(broker, windows).content_hash == draft(broker).content_hash


@pytest.mark.threat("T40")
def test_nobody_fills_the_register_with_drafts(broker: Broker) -> None:
    every = [draft(broker, {}) for _ in range(MAX_OPEN)]
    assert refused(lambda: draft(broker, {})).code == "policy.too_many"
    broker.proposing.withdraw(who(broker, "ada/admin"), every[0].proposal_id, 1)
    draft(broker, {})
    draft(broker, {}, author="eve/admin")


def test_nobody_takes_back_by_oversight_what_others_changed(broker: Broker) -> None:
    ada, before = who(broker, "ada/admin"), hash_now(broker)
    one = draft(broker)
    now = in_force(broker, texts("two")).content_hash
    submit = broker.proposing.submit
    for base in (None, before):
        error = refused(partial(submit, ada, one.proposal_id, one.version, base))
        assert (error.code, type(error)) == ("policy.stale", Conflict)
    assert refused(lambda: broker.proposing.propose(ada, "three", texts("three"), before)).code == "policy.stale"
    again = submit(ada, one.proposal_id, one.version, now)
    assert (again.base_hash, again.base_number) == (now, 1)
    activate(broker, approve(broker, again))
    assert hash_now(broker) == one.content_hash
