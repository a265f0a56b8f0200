"""What a new bundle would change, in words: nothing that opens something may go unsaid."""

from datetime import date

import pytest
from policy_bundles import ACCOUNTS, FORKS, OTHER, PROTECTED, bundle_of, files_of, forbid, permit
from policy_examples import ISSUER, texts

from bridge.policy.bundle import Bundle, parse_bundle
from bridge.policy.difference import Difference, difference

TODAY = date(2026, 11, 18)
LIMITS = texts()["limits.toml"]
CLUSTERS = texts()["clusters.toml"]
PRODUCTION = permit("production", 'when { context has partition && context.partition == "production" };', "production")
BOTH = "101 as alice (20001), 102 as bob (20002)"
MDS = "lustre_mds/mds1.realm.test, lustre_mds/mds2.realm.test"
BOB_ONLY = permit("bob", head='principal == User::"https://gitlab.realm.test/102"')


def said(old: Bundle, new: Bundle) -> list[str]:
    """The lines of the difference."""
    return difference(old, new, TODAY).lines()


def people(found: Difference) -> list[str]:
    """The lines about people."""
    return [line for shift in found.shifts for line in shift.lines(one_issuer=True)]


def test_the_same_bundle_has_no_difference(bundle: Bundle) -> None:
    found = difference(bundle, bundle, TODAY)
    assert found.empty
    assert found.lines() == ["no difference: the bundles are the same"]
    assert found.to_json()["empty"] is True


def test_comments_layout_order_and_cases_are_no_difference(bundle: Bundle) -> None:
    files = dict(bundle.files)
    names = sorted(name for name in files if name.endswith(".cedar"))
    everything = "\n".join(files.pop(name) for name in reversed(names))
    other = parse_bundle(files | {"all.cedar": f"// moved\n{everything.replace(' {', '  {')}"})
    assert other.content_hash != bundle.content_hash
    assert said(bundle, other) == ["no difference: nothing changes for anybody"]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (
            [PROTECTED],
            [PROTECTED, OTHER],
            ["101 as alice (20001), 102 as bob (20002) may now also run: other refs (limits small)"],
        ),
        (
            [PROTECTED, OTHER],
            [PROTECTED],
            ["101 as alice (20001), 102 as bob (20002) may no longer run: other refs (limits small)"],
        ),
        ([FORKS], [BOB_ONLY, FORKS], ["102 as bob (20002) may now also run: always (limits small)"]),
        (
            [PROTECTED, FORKS],
            [PROTECTED],
            ["101 as alice (20001), 102 as bob (20002) may now also run: forks, protected refs (limits standard)"],
        ),
        (
            [PROTECTED],
            [PROTECTED, FORKS],
            ["101 as alice (20001), 102 as bob (20002) may no longer run: forks, protected refs (limits standard)"],
        ),
        (
            [PROTECTED],
            [PROTECTED.replace("standard", "production")],
            [
                "101 as alice (20001), 102 as bob (20002) get limits production instead of standard: protected refs",
            ],
        ),
        (
            [PROTECTED],
            [PROTECTED, PRODUCTION],
            [
                f"{BOTH} may now also run: jobs with an id_token, other refs, partition production (limits production)",
            ],
        ),
        (
            [PROTECTED, forbid("night", "when { context.hour < 6 };")],
            [PROTECTED, forbid("night", "when { context.hour < 4 };")],
            [
                f"{BOTH} may now also run: protected refs, 04:00 to 05:59 (limits standard)",
            ],
        ),
        # What a forbid leaves out anyway is not repeated, but this forbid is what has changed.
        (
            [PROTECTED, forbid("a", "when { context.ref_protected };")],
            [PROTECTED, forbid("a", 'when { context.ref_protected } unless { context.pipeline_source == "web" };')],
            [f"{BOTH} may now also run: pipeline source web, protected refs (limits standard)"],
        ),
        (
            [permit("a").replace("@limits", '@expires("2026-12-01") @limits')],
            [permit("a").replace("@limits", '@expires("2026-12-24") @limits')],
            [f"{BOTH} may now also run: on days like Wed 2026-12-02, Wed 2026-12-23, Thu 2026-12-24 (limits small)"],
        ),
    ],
    ids=["permit", "no-permit", "one", "no-forbid", "forbid", "limits", "partition", "hours", "narrower", "expires"],
)  # fmt: skip
def test_no_change_of_access_goes_unsaid(old: list[str], new: list[str], lines: list[str]) -> None:
    found = difference(bundle_of(*old), bundle_of(*new), TODAY)
    assert people(found) == lines
    assert [change.what for change in found.changes] == ["policy"]
    assert all(shift.loud is ("no longer" not in line) for shift, line in zip(found.shifts, lines, strict=True))


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("limits.toml", "max_nodes = 2", "max_nodes = 3", "! limits standard: max_nodes 2 -> 3"),
        ("limits.toml", "max_nodes = 2", "max_nodes = 1", "  limits standard: max_nodes 2 -> 1"),
        (
            "limits.toml",
            'partitions = ["ci", "debug"]',
            'partitions = ["ci", "debug", "all"]',
            "! limits standard: partitions [ci, debug] -> [ci, debug, all]",
        ),
        ("limits.toml", "ticket_minutes = 180", "ticket_minutes = 600", "! limits standard: ticket_minutes 180 -> 600"),
        (
            "limits.toml",
            "ticket_minutes = 180",
            'ticket_minutes = 180\nevidence = "job_token"',
            "! limits standard: evidence id_token -> job_token",
        ),
        (
            "limits.toml",
            "ticket_minutes = 180",
            'ticket_minutes = 180\ntargets = ["lustre_mds/mds1.realm.test"]',
            "  limits standard: targets all of the cluster's -> [lustre_mds/mds1.realm.test]",
        ),
        (
            "limits.toml",
            "ticket_minutes = 180",
            "ticket_minutes = 180\njob_token_on_nodes = true",
            "! limits standard: job_token_on_nodes False -> True",
        ),
        ("limits.toml", "Europe/Zurich", "UTC", "! calendar zone: Europe/Zurich -> UTC"),
        ("accounts.toml", "uid = 1000", "uid = 500", "! floor uid: 1000 -> 500"),
        ("accounts.toml", '["sudo"]', "[]", "! denied groups: [sudo] -> []"),
        ("accounts.toml", '["slurm"]', '["slurm", "munge"]', "  denied users: [slurm] -> [munge, slurm]"),
        (
            "accounts.toml",
            "expires = 2026-12-31\n",
            "",
            "! account 102 at https://gitlab.realm.test: bob (20002) until 2026-12-31 -> bob (20002)",
        ),
        (
            "accounts.toml",
            "uid = 20001",
            "uid = 20009",
            "! account 101 at https://gitlab.realm.test: alice (20001) -> alice (20009)",
        ),
        (
            "clusters.toml",
            'node_targets = ["lustre_mds/mds1.realm.test", ',
            'node_targets = ["host/login.realm.test", "lustre_mds/mds1.realm.test", ',
            f"! cluster pocket: node_targets [{MDS}] -> [host/login.realm.test, {MDS}]",
        ),
        (
            "clusters.toml",
            'login_host = "login.realm.test"',
            'login_host = "other.realm.test"',
            "! cluster pocket: login_host login.realm.test -> other.realm.test",
        ),
    ],
    ids=lambda value: value if str(value).startswith(("!", " ")) else "",
)
def test_no_change_of_numbers_rows_or_clusters_goes_unsaid(file: str, old: str, new: str, line: str) -> None:
    files = files_of(PROTECTED, FORKS)
    assert old in files[file]
    other = parse_bundle(files | {file: files[file].replace(old, new, 1)})
    assert line in said(parse_bundle(files), other)


def test_a_new_row_says_what_the_person_may_do() -> None:
    row = ACCOUNTS.partition("[[account]]")[2].partition("[[account]]")[0]
    more = ACCOUNTS + "[[account]]" + row.replace("101", "103").replace("alice", "carol").replace("20001", "20003")
    rules = [PROTECTED, OTHER]
    assert said(bundle_of(*rules), bundle_of(*rules, accounts_toml=more)) == [
        "! 103 as carol (20003) may now also run: other refs (limits small)",
        "! 103 as carol (20003) may now also run: protected refs (limits standard)",
        "! account 103 at https://gitlab.realm.test added: carol (20003)",
    ]
    assert said(bundle_of(*rules, accounts_toml=more), bundle_of(*rules))[0] == (
        "  103 as carol (20003) may no longer run: other refs (limits small)"
    )


def test_a_team_says_whose_account_it_takes() -> None:
    team = f'[[team]]\nissuer = "{ISSUER}"\naccount = "svc"\nuid = 20100\nmembers = [101]\nprojects = [42]\n'
    assert said(bundle_of(PROTECTED), bundle_of(PROTECTED, accounts_toml=ACCOUNTS + team)) == [
        "! 101 as svc (20100) may now also run: protected refs (limits standard)",
        "  101 as alice (20001) may no longer run: not from forks, project 42, protected refs (limits standard)",
        "! team svc at https://gitlab.realm.test added: uid 20100, users 101 in projects 42",
    ]


def test_a_cluster_that_is_added_is_loud() -> None:
    second = CLUSTERS.partition("[cluster.pocket]")[2]
    new = bundle_of(PROTECTED, clusters_toml=f"{CLUSTERS}\n[cluster.purse]{second}")
    lines = said(bundle_of(PROTECTED), new)
    assert (
        "! 101 as alice (20001), 102 as bob (20002) may now also run: cluster purse, protected refs (limits standard)"
        in lines
    )
    assert any(line.startswith("! cluster purse added: realm REALM.TEST") for line in lines)


def test_issuers_are_named_where_there_are_several() -> None:
    other = ACCOUNTS + '[[account]]\nissuer = "https://git.example"\nuser_id = 1\naccount = "dave"\nuid = 20007\n'
    first, *_ = said(bundle_of(FORKS, accounts_toml=other), bundle_of(PROTECTED, FORKS, accounts_toml=other))
    assert first == (
        "! 1 at https://git.example as dave (20007), 101 at https://gitlab.realm.test as alice (20001), "
        "102 at https://gitlab.realm.test as bob (20002) may now also run: protected refs (limits standard)"
    )


def test_the_same_two_bundles_are_always_told_in_the_same_words(bundle: Bundle) -> None:
    other = bundle_of(PROTECTED, OTHER, FORKS)
    assert difference(bundle, other, TODAY).to_json() == difference(bundle, other, TODAY).to_json()
    there, back = difference(bundle, other, TODAY), difference(other, bundle, TODAY)
    assert {shift.kind for shift in there.shifts} == {"gained", "lost"}
    gained = {(shift.people, shift.after) for shift in there.shifts if shift.kind == "gained"}
    assert gained == {(shift.people, shift.before) for shift in back.shifts if shift.kind == "lost"}
