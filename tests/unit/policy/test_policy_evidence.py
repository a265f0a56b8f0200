"""Facts that policies can ask about, and those that nobody has proven: absent, and never a way in."""

import re
from pathlib import Path
from typing import Any

import pytest
from policy_examples import texts
from test_policy_engine import EVERYBODY, NOBODY, decide, engine_of, refusal

from bridge.errors import RequestRefused
from bridge.model import EvidenceLevel, ExternalIdentity
from bridge.policy.bundle import load_bundle, parse_bundle
from bridge.policy.engine import Engine
from bridge.policy.problems import InvalidBundle
from bridge.policy.trial import run_cases

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"

UNPROVEN: dict[str, Any] = {
    "evidence": EvidenceLevel.INTROSPECTED,
    "namespace_id": None,
    "runner_environment": None,
    "ref_protected": False,
}
"""What a job token alone leaves open."""

FACTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ('context.evidence == "id_token"', {}, UNPROVEN),
    ("context has namespace_id && context.namespace_id == 5", {}, {"namespace_id": 6}),
    (
        'context has ci_config_ref_uri && context.ci_config_ref_uri like "gitlab.test/ops/ci//*@refs/heads/main"',
        {"ci_config_ref_uri": "gitlab.test/ops/ci//x.yml@refs/heads/main"},
        {"ci_config_ref_uri": "gitlab.test/evil/ci//x.yml@refs/heads/main"},
    ),
    (
        f'context has ci_config_sha && context.ci_config_sha == "{"a" * 40}"',
        {"ci_config_sha": "a" * 40},
        {"ci_config_sha": "b" * 40},
    ),
    (
        "context has environment_protected && context.environment_protected",
        {"environment_protected": True},
        {"environment_protected": False},
    ),
    (
        'context has deployment_tier && context.deployment_tier == "production"',
        {"deployment_tier": "production"},
        {"deployment_tier": "other"},
    ),
    (
        'context has user_access_level && context.user_access_level == "maintainer"',
        {"user_access_level": "maintainer"},
        {"user_access_level": "guest"},
    ),
    ('context has ref_path && context.ref_path == "refs/tags/1"', {"ref_path": "refs/tags/1"}, {"ref_path": "x"}),
    ('context has groups && context.groups.contains("chem")', {"groups": ("chem", "x")}, {"groups": ("chemistry",)}),
    (
        'context has user_identities && context.user_identities.contains({provider: "ldap", extern_uid: "uid=a"})',
        {"user_identities": (ExternalIdentity("saml", "x"), ExternalIdentity("ldap", "uid=a"))},
        {"user_identities": (ExternalIdentity("ldap", "x"), ExternalIdentity("saml", "uid=a"))},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "proven", "otherwise"), FACTS, ids=[row[0] for row in FACTS])
def test_a_policy_can_ask_about_a_fact(condition: str, proven: dict[str, Any], otherwise: dict[str, Any]) -> None:
    engine = engine_of(EVERYBODY.replace(";", f" when {{ {condition} }};"))
    assert decide(engine, **proven).policy_ids == ("everybody",)
    assert refusal(engine, **otherwise).code == "policy.no_permit"


@pytest.mark.threat("T12")
@pytest.mark.parametrize("condition", [row[0] for row in FACTS[1:]])
def test_an_unproven_fact_opens_no_permit_and_closes_every_unless(condition: str) -> None:
    absent = {"namespace_id": None}
    permit = engine_of(EVERYBODY.replace(";", f" when {{ {condition} }};"))
    forbid = engine_of(EVERYBODY, NOBODY.replace(";", f" unless {{ {condition} }};"))
    assert refusal(permit, **absent).code == "policy.no_permit"
    assert refusal(forbid, **absent).code == "policy.forbidden"


@pytest.mark.threat("T12")
@pytest.mark.parametrize(
    "condition",
    [
        "context.namespace_id == 5",
        'context.runner_environment == "self-hosted"',
        "context.environment_protected",
        'context.groups.contains("chem")',
        'context has groups && context.groups.contains({provider: "a", extern_uid: "b"})',
        'context.evidence == 1',
    ],
)  # fmt: skip
def test_a_bundle_that_takes_an_unproven_fact_for_granted_does_not_load(condition: str) -> None:
    with pytest.raises(InvalidBundle):
        engine_of(EVERYBODY.replace(";", f" when {{ {condition} }};"))


def test_the_shipped_bundle_refuses_a_job_token_alone_and_says_what_to_add(engine: Engine) -> None:
    error = refusal(engine, **UNPROVEN)
    assert error.code == "policy.forbidden"
    assert "id-token-required" in error.title
    assert "id_tokens:" in error.remedy
    assert "id_tokens:" not in refusal(engine, pipeline_source="trigger").remedy


def test_no_permit_for_a_job_token_says_what_to_add() -> None:
    assert "id_tokens:" in refusal(engine_of(), **UNPROVEN).remedy
    assert "id_tokens:" not in refusal(engine_of()).remedy


def examples() -> tuple[list[str], str]:
    """The policies and the case that the documentation gives for jobs without an id_token."""
    section = PAGE.read_text().partition("### Jobs without an id_token\n")[2].partition("\n## ")[0]
    code = re.sub(r"^ {4}", "", "\n".join(line for line in section.splitlines() if line.startswith("    ")), flags=re.M)
    policies, mark, case = code.partition("[[case]]")
    return re.split(r"(?<=;)\s+", policies.strip()), mark + case


def test_the_documented_example_lets_one_project_in_and_no_other() -> None:
    policies, case = examples()
    guards = texts()["guards.cedar"]
    for policy in policies:
        name = re.findall(r'@id\("([a-z-]+)"\)', policy)[0]
        guards, count = re.subn(rf'@id\("{name}"\).*?;', lambda _, new=policy: new, guards, flags=re.S)
        assert count == 1, name
    other = case.replace("project 7", "project 8").replace(
        'job.evidence = "job_token"', 'job = { evidence = "job_token", project_id = 8 }'
    )
    other = re.sub("expect = .*", 'expect = { decision = "policy.forbidden", policies = ["id-token-required"] }', other)
    runner = case.replace("needs no", "runs on").replace(
        'job.evidence = "job_token"', 'job = { evidence = "job_token", runner_id = 2 }'
    )
    runner = re.sub(
        "expect = .*", 'expect = { decision = "policy.forbidden", policies = ["only-own-runners"] }', runner
    )
    shipped = texts()["cases/guards.toml"].partition('\n[[case]]\nname = "a job that shows its job token only')[0]
    bundle = parse_bundle(
        texts() | {"guards.cedar": guards, "cases/guards.toml": shipped, "cases/x.toml": f"{case}\n{other}\n{runner}"}
    )
    results = run_cases(bundle)
    assert [result.differences for result in results if not result.passed] == []
    assert {"project 7 needs no id_token", "project 8 needs no id_token"} <= {result.name for result in results}


@pytest.mark.parametrize("said", ["ref_protected = true", "namespace_id = 5", 'groups = ["x"]', 'environment = "prod"'])
def test_a_case_can_not_claim_what_a_job_token_does_not_prove(tmp_path: Path, said: str) -> None:
    case = f"""
[[case]]
name = "x"
issuer = "https://gitlab.realm.test"
user_id = 101
job = {{ evidence = "job_token", {said} }}
expect = {{ decision = "allowed" }}
"""
    for name, text in (texts() | {"cases/x.toml": case}).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with pytest.raises(RequestRefused) as caught:
        load_bundle(tmp_path)
    assert "a job token does not prove" in str(caught.value.context["problems"])
