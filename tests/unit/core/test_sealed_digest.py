"""The digest that is sealed: every field of every row, whatever the order."""

from __future__ import annotations

import enum
from dataclasses import fields, replace
from datetime import datetime, timedelta

import pytest
from sealed_site import REVOKED

from bridge.register import ProjectRef, Register
from bridge.sealed import digest
from tests.register_example import (
    GITLAB,
    NOW,
    broken_glass,
    consent,
    link,
    proposal,
    switch,
)


def _other(value: object) -> object:
    match value:
        case enum.StrEnum():
            return next(one for one in type(value) if one is not value)
        case datetime():
            return value + timedelta(microseconds=1)
        case int():
            return value + 1
        case tuple():
            return (*value, ProjectRef(GITLAB, 99))
        case str():
            return value + " "
    return NOW


FULL = Register(
    1,
    (replace(REVOKED, ended_at=NOW),),
    (consent(),),
    (switch(lifted_at=NOW, lifted_by="eve"),),
    (proposal(activated_by="olga"),),
    (broken_glass(proposal_id="PROP-0000-0001"),),
)


@pytest.mark.threat("T21")
@pytest.mark.parametrize("rows", ["links", "consents", "switches", "proposals", "activations"])
def test_every_field_of_every_row_is_sealed(rows: str) -> None:
    [row] = getattr(FULL, rows)
    for field in fields(row):
        value = getattr(row, field.name)
        for changed in (_other(value), None, ""):
            if changed != value:
                assert digest(replace(FULL, **{rows: (replace(row, **{field.name: changed}),)})) != digest(FULL), field
    assert digest(replace(FULL, **{rows: ()})) != digest(FULL)
    assert digest(replace(FULL, **{rows: (row, row)})) != digest(FULL)


def test_a_register_without_the_kinds_of_later_releases_has_the_digest_of_the_first() -> None:
    """Made by the first release, of the same three rows: a bridge that is upgraded finds its seal good."""
    before = Register(1, FULL.links, FULL.consents, FULL.switches)
    assert digest(before).hex() == "b5c57a8a18bfcc7ef5e1c579477e9965cf5ba410c08a94b0e4f892efcc87a597"
    assert digest(replace(before, proposals=FULL.proposals)) != digest(before)


def test_the_order_of_rows_is_not_sealed() -> None:
    one, other = Register(1, links=(link("A"), link("B", 2))), Register(1, links=(link("B", 2), link("A")))
    assert digest(one) == digest(other)
