"""What makes a bundle unusable, and where the problem is said to be."""

import shutil
from pathlib import Path

import pytest
from policy_examples import POLICIES, texts

from bridge.errors import PolicyRefused, RequestRefused
from bridge.policy.bundle import Bundle, load_bundle, parse_bundle
from bridge.policy.cases import Case
from bridge.policy.problems import InvalidBundle
from bridge.policy.trial import run_case


def problems(changes: dict[str, str]) -> list[str]:
    """What is said of the shipped bundle with some files replaced."""
    with pytest.raises(InvalidBundle) as caught:
        parse_bundle(texts() | changes)
    return [str(problem) for problem in caught.value.problems]


SHIPPED = load_bundle(POLICIES)


@pytest.mark.parametrize("case", SHIPPED.cases, ids=lambda case: case.name)
def test_the_shipped_bundle_decides_its_cases_as_written(case: Case) -> None:
    assert run_case(SHIPPED, case).differences == ()


def test_a_case_that_comes_out_otherwise_says_what_it_got(bundle: Bundle) -> None:
    case = bundle.cases[0]
    wrong = case.model_copy(update={"expect": case.expect.model_copy(update={"decision": "allowed"})})
    result = run_case(bundle, wrong)
    assert not result.passed
    assert result.differences[0] == "decision: got 'policy.forbidden', expected 'allowed'"


def test_the_row_to_root_loads_with_a_warning(bundle: Bundle) -> None:
    assert [str(problem) for problem in bundle.warnings] == [
        "accounts.toml: user 105 of https://gitlab.realm.test is linked to root (0), never allowed"
    ]


def test_the_hash_changes_with_any_content_and_with_nothing_else(tmp_path: Path, bundle: Bundle) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(POLICIES, copy)
    (copy / "README.md").write_text("another")
    (copy / "people.cedar~").write_text("backup")
    assert load_bundle(copy).content_hash == bundle.content_hash
    for file in ("people.cedar", "cases/people.toml", "limits.toml"):
        with (copy / file).open("a") as stream:
            stream.write("\n")
        changed = load_bundle(copy).content_hash
        assert changed != bundle.content_hash
        bundle = load_bundle(copy)
    (copy / "people.cedar").rename(copy / "persons.cedar")
    assert load_bundle(copy).content_hash != bundle.content_hash


PERMIT = '@id("a")\n@limits("standard")\npermit (principal, action == Action::"run_as", resource);\n'

CEDAR = {
    "no id": (PERMIT.replace('@id("a")\n', ""), "extra.cedar:1: the policy has no @id"),
    "empty id": (PERMIT.replace('"a"', '""'), "extra.cedar:1: the policy has no @id"),
    "capital id": (PERMIT.replace('"a"', '"A"'), "extra.cedar:1: the policy has no @id"),
    "id twice": (f"// first\n\n{PERMIT}\n{PERMIT}", "extra.cedar:7: @id 'a' is used in extra.cedar:3 already"),
    "id of another file": (PERMIT.replace('"a"', '"no-forks"'), "guards.cedar:2: @id 'no-forks' is used in extra"),
    "permit without limits": (
        PERMIT.replace('@limits("standard")\n', ""),
        ":1: the permit names no @limits",
    ),
    "unknown limits": (PERMIT.replace("standard", "huge"), "extra.cedar:1: @limits: there is no envelope 'huge'"),
    "second limits unknown": (PERMIT.replace("standard", "standard huge"), "there is no envelope 'huge'"),
    "unknown annotation": (f'@limit("x")\n{PERMIT}', "extra.cedar:1: unknown annotation @limit"),
    "forbid without reason": (
        PERMIT.replace("permit", "forbid").replace('@limits("standard")\n', ""),
        "extra.cedar:1: the forbid has no @reason",
    ),
    "forbid with limits": (PERMIT.replace("permit", "forbid"), "extra.cedar:1: @limits belongs to a permit"),
    "misspelt attribute": (
        PERMIT.replace(";", " when { context.ref_protcted };"),
        "extra.cedar:1: attribute `ref_protcted`",
    ),
    "unknown action": (PERMIT.replace("run_as", "run-as"), "extra.cedar:1: unrecognized action"),
    "wrong type": (PERMIT.replace(";", ' when { context.project_id == "7" };'), "extra.cedar:1: "),
    "syntax": (f"\n\n{PERMIT.replace('principal,', 'principal')}", "extra.cedar:3: "),
    "semicolon in a string": (PERMIT.replace(";", ' when { context.ref == "a;b" };') + '@id("b") permit;', "cedar:4: "),
    "unfinished": (PERMIT + "permit (principal", "extra.cedar:4: "),
    "template": (PERMIT.replace("principal,", "principal == ?principal,"), "extra.cedar:1: templates are not used"),
}


@pytest.mark.parametrize("kind", CEDAR)
def test_policies_are_checked_with_file_and_line(kind: str) -> None:
    text, expected = CEDAR[kind]
    said = problems({"extra.cedar": text})
    assert any(expected in one for one in said), said


def edited(file: str, old: str, new: str) -> str:
    """The shipped file with one change, which must be possible."""
    text = texts()[file]
    assert old in text
    return text.replace(old, new, 1)


TOML = {
    "unknown key": ("limits.toml", "max_nodes = 2", "max_nodes = 2\nmax_node = 3", "limits.toml:"),
    "number as text": ("limits.toml", "max_nodes = 2", 'max_nodes = "2"', "limits.toml:9: limits.standard.max_nodes"),
    "no nodes": ("limits.toml", "max_nodes = 2", "max_nodes = 0", "limits.toml:9: "),
    "default above maximum": ("limits.toml", "default_time_minutes = 30", "default_time_minutes = 300", "default_time"),
    "no partitions": ("limits.toml", 'partitions = ["ci", "debug"]', "partitions = []", "limits.toml:8: "),
    "option as partition": ("limits.toml", '"debug"]', '"--uid=0"]', "limits.toml:8: "),
    "broken TOML": ("limits.toml", "max_nodes = 2", "max_nodes = ", "limits.toml:9: "),
    "unknown table": ("accounts.toml", "[floor]", "[flor]\n[floor]", "flor: "),
    "no floor": ("accounts.toml", "[floor]\nuid = 1000", "", "accounts.toml: floor: "),
    "floor of zero": ("accounts.toml", "uid = 1000", "uid = 0", "floor.uid: "),
    "user twice": ("accounts.toml", "user_id = 102", "user_id = 101", "user 101 of https://gitlab.realm.test has two"),
    "boolean id": ("accounts.toml", "user_id = 102", "user_id = true", "accounts.toml:"),
    "unknown default": ("clusters.toml", 'default = "pocket"', 'default = "other"', "there is no cluster 'other'"),
    "relative path": ("clusters.toml", '"/builds"', '"builds"', "builds_root"),
    "path with dots": ("clusters.toml", '"/builds"', '"/builds/../etc"', "builds_root"),
    "cache without uid": ("clusters.toml", "krb5cc_%{uid}", "krb5cc", "ccache"),
    "target with realm": ("clusters.toml", "lustre_mds/mds1.realm.test", "krbtgt/REALM.TEST@REALM.TEST", "targets"),
    "port": ("clusters.toml", "login_port = 22", "login_port = 70000", "login_port"),
    "login node": ("clusters.toml", "login_port = 22", "login_port = 22\nlogin_hosts = ['two host']", "login_hosts"),
    "unknown case key": ("cases/people.toml", "[[case]]", "[[case]]\nexpected = 1", "cases/people.toml:"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOML)
def test_tables_are_checked_with_file_and_line(kind: str) -> None:
    file, old, new, expected = TOML[kind]
    said = problems({file: edited(file, old, new)})
    assert any(expected in one for one in said), said
    assert all(one.startswith(file) for one in said)


SCHEMAS = {
    "lacks what is told": ("    hour: Long,\n", ""),
    "lacks what may be told": ("    nodes?: Long,\n", ""),
    "lacks what is told of an account": ("  gid: Long,\n", ""),
    "another type": ("    hour: Long,\n", "    hour: String,\n"),
    "more than is told": ("    hour: Long,\n", "    hour: Long,\n    moon: Long,\n"),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_of_another_release_does_not_load_to_refuse_everybody_later(kind: str) -> None:
    schema = edited("schema.cedarschema", *SCHEMAS[kind])
    only = '@id("a") @limits("small") permit (principal, action == Action::"run_as", resource);'
    said = problems({"schema.cedarschema": schema, "people.cedar": only, "guards.cedar": "", "research.cedar": ""})
    assert [one.partition(" said")[0][:61] for one in said] == [
        "schema.cedarschema: not the schema of this release: failed to"
    ]


NAMES = [
    "root ", "Alice", "alice@REALM", "host/x", "a\\@b", "a b", "-oProxyCommand", "a\u0000", "", "a" * 33, "../x", "a.b",
    "\u0430lice", "ali\u200bce", "alice\u202e", "a$", "0day", "alice\n", "ＡＬＩＣＥ", "é",
]  # fmt: skip


@pytest.mark.threat("T17")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_account_names_beyond_plain_ascii_are_refused(name: str) -> None:
    escaped = name.encode("unicode_escape").decode().replace("\\x00", "\\u0000").replace("\\x", "\\u00")
    escaped = escaped if name != "a\\@b" else "a\\\\@b"
    said = problems({"accounts.toml": edited("accounts.toml", 'account = "alice"', f'account = "{escaped}"')})
    assert all(one.startswith("accounts.toml") for one in said)


def test_all_problems_of_all_files_are_told_at_once() -> None:
    said = problems(
        {
            "extra.cedar": "permit (principal, action, resource);",
            "accounts.toml": edited("accounts.toml", "uid = 1000", "uid = 0"),
            "clusters.toml": edited("clusters.toml", "login_port = 22", "login_port = 0"),
        }
    )
    assert {one.partition(":")[0] for one in said} == {"extra.cedar", "accounts.toml", "clusters.toml"}


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(POLICIES, copy)
    (copy / "limits.toml").unlink()
    (copy / "guards.cedar").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestRefused) as caught:
        load_bundle(copy)
    assert caught.value.code == "policy.invalid"
    assert caught.value.status == 422
    said = caught.value.context["problems"]
    assert isinstance(said, tuple)
    assert [one.partition(":")[0] for one in said] == ["limits.toml", "guards.cedar"]


def test_an_unknown_cluster_is_refused_and_none_is_the_default(bundle: Bundle) -> None:
    assert bundle.clusters.choose(None).name == bundle.clusters.choose("pocket").name == "pocket"
    with pytest.raises(PolicyRefused) as caught:
        bundle.clusters.choose("../pocket")
    assert caught.value.code == "cluster.unknown"
