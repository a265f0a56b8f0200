"""Expressions as Cedar text: what is written reads back as the same expression, and reads like an author's."""

import json
from typing import Any

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.policy.bundle import Bundle
from bridge.policy.cedartext import cedar_text


def parsed(text: str) -> Any:
    """The expression of a condition."""
    (policy,) = json.loads(cedarpy.policies_to_json_str(f"permit (principal, action, resource) when {{ {text} }};"))[
        "staticPolicies"
    ].values()
    return policy["conditions"][0]["body"]


AS_WRITTEN = [
    "context.ref_protected",
    "!context.ref_protected",
    "!(context.a && context.b)",
    "context.a && (context.b || context.c)",
    "context.a || context.b && context.c",
    "context.a && (context.b && context.c)",
    "context.n + 1 - 2 * 3 > -4",
    "context.n - (1 - 2) == 0",
    "(context.n + 1) * 2 <= 3",
    "-context.n < 5",
    "(context.a == context.b) == true",
    '["a", "b"].contains(context.c)',
    '["a"].containsAny(context.c) && context.d.containsAll([1, 2])',
    "context.set.isEmpty()",
    'context has partition && context.partition == "x"',
    'context has "then" && context["if"].has_is.iff && context["in"]',
    'context has "odd name" && context["odd name"] == 1',
    'context.path like "a*b\\*c"',
    'principal is User && resource is Account in PosixGroup::"chem"',
    'resource in PosixGroup::"a\\"b\\\\c"',
    '[User::"https://x/1", User::"https://x/2"].contains(principal)',
    'if context.a then context.b else context.c && true',
    '(if context.a then context.b else context.c) && true',
    'context.ids.contains({extern_uid: "uid=a", provider: "ldap"})',
    'context.at < datetime("2027-01-01") && context.at.toDate() == datetime("2027-01-01")',
    'ip("10.0.0.1").isInRange(ip("10.0.0.0/8"))',
    'decimal("1.5").lessThan(decimal("2.0"))',
    'context.s == "tab\\t line\\n quote\\" nul\\0 \\u{1b}"',
    'principal.getTag("a") == "b" && principal.hasTag("c")',
]  # fmt: skip


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_what_an_author_writes_comes_back_word_for_word(text: str) -> None:
    assert cedar_text(parsed(text)) == text


def test_all_conditions_of_the_shipped_bundle_read_back(bundle: Bundle) -> None:
    policies = json.loads(cedarpy.policies_to_json_str(bundle.policies.text))["staticPolicies"].values()
    bodies = [condition["body"] for policy in policies for condition in policy["conditions"]]
    assert len(bodies) > 20
    assert [parsed(cedar_text(body)) for body in bodies] == bodies


LEAF = st.one_of(
    st.sampled_from([{"Var": "context"}, {".": {"left": {"Var": "context"}, "attr": "n"}}]),
    st.integers(-(2**63) + 1, 2**63 - 1).map(lambda number: {"Value": number}),
    st.text(max_size=8).map(lambda text: {"Value": text}),
    st.booleans().map(lambda truth: {"Value": truth}),
)
EXPRESSION = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(["&&", "||", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "contains"]),
            inner,
            inner,
        ).map(lambda one: {one[0]: {"left": one[1], "right": one[2]}}),
        inner.map(lambda one: {"!": {"arg": one}}),
        st.tuples(inner, st.sampled_from(["then", "is", "principal", "_", "a1"])).map(
            lambda one: {".": {"left": one[0], "attr": one[1]}}
        ),
        st.tuples(inner, st.text(max_size=6)).map(lambda one: {".": {"left": one[0], "attr": one[1]}}),
        st.tuples(inner, st.text(max_size=6)).map(lambda one: {"has": {"left": one[0], "attr": one[1]}}),
        st.tuples(inner, inner, inner).map(
            lambda one: {"if-then-else": {"if": one[0], "then": one[1], "else": one[2]}}
        ),
        st.lists(inner, max_size=3).map(lambda ones: {"Set": ones}),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(EXPRESSION)
def test_no_expression_changes_its_meaning_on_paper(expression: Any) -> None:
    assert parsed(cedar_text(expression)) == expression
