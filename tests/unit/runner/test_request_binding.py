"""One request, one binding: whatever differs gives another, and the same said otherwise gives the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from runner.binding import node_binding, request_binding

Request = tuple[str, str, int | None, dict[str, Any]]

DIFFERENT: list[Request] = [
    ("POST", "/a", None, {}),
    ("PUT", "/a", None, {}),
    ("POST", "/b", None, {}),
    ("POST", "/a/", None, {}),
    ("POST", "/a", 0, {}),
    ("POST", "/a", 1, {}),
    ("POST", "/a", None, {"a": 1}),
    ("POST", "/a", None, {"a": "1"}),
    ("POST", "/a", None, {"a": True}),
    ("POST", "/a", None, {"a": ["1"]}),
    ("POST", "/a", None, {"a": {}}),
    ("POST", "/a", None, {"a": {"b": None}}),
    ("POST", "/a", None, {"b": 1}),
    ("POST", "/a", None, {"a": 1, "b": 1}),
    ("POST", "/a", None, {"a": "é"}),
    ("POST", "/a", None, {"a": "e\u0301"}),
    ("POST", "/a", None, {"a": '","b":"'}),
]


@pytest.mark.threat("T21")
def test_whatever_differs_is_another_request() -> None:
    found = [request_binding(*one) for one in DIFFERENT] + [node_binding("tickets", 1, 1, "n")]
    assert all(one != other for one, other in itertools.combinations(found, 2))
    assert {len(one) for one in found} == {32}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
        ({"a": 1, "b": None}, {"a": 1}),
        ({}, {"a": None}),
    ],
)
def test_the_same_said_otherwise_is_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert request_binding("POST", "/a", 2, one) == request_binding("POST", "/a", 2, other)


def test_the_form_is_the_one_that_is_documented() -> None:
    """SHA-256 of ``["ci-bridge-request/1","POST","/v1/kills/X/lift",null,"<SHA-256 of {"reason":"r"}>"]``."""
    found = request_binding("POST", "/v1/kills/X/lift", None, {"reason": "r"})
    assert found.hex() == "f7a8c2991c7ff09eae2056c203fb687e8119c4c0474e0e24d12942dea361272a"
