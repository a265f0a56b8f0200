"""API tokens and session epochs in their tables: what is put comes back, and the databases hold their rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bridge.access import FIRST_EPOCH, ApiToken, SessionEpoch
from bridge.audit.ledger import Ledger
from bridge.errors import Defect
from bridge.register import Register, RegisterHead, edited
from bridge.sealed import digest
from tests.register_example import NOW

ALICE = "alice@REALM.TEST"
TOKEN = ApiToken(
    token_id="TOKN-0000-0001",
    secret_hash="a" * 64,
    principal=ALICE,
    scopes=("author", "viewer"),
    note="nightly",
    created_by=ALICE,
    created_at=NOW,
    expires_at=NOW + timedelta(days=366),
)
REVOKED = replace(TOKEN, revoked_at=NOW, revoked_by="oli@REALM.TEST")
OTHER = replace(TOKEN, token_id="TOKN-0000-0000", secret_hash="b" * 64, created_at=NOW + timedelta(seconds=1))
EPOCH = SessionEpoch(ALICE, 3, "oli@REALM.TEST", NOW)


def put(ledger: Ledger, *rows: ApiToken | SessionEpoch) -> Register:
    """Store rows in one transaction that is sealed in no good way; returns the register then."""
    with ledger.begin() as tx:
        before = tx.register()
        for row in rows:
            tx.put_api_token(row) if isinstance(row, ApiToken) else tx.put_session_epoch(row)
        tx.set_register_head(RegisterHead(tx.register_head().revision + 1, b"seal"))
        within = tx.register()
        assert edited(before, tx.edits()) == within
        return within


def test_what_is_put_comes_back_in_order_and_as_it_was_put(ledger: Ledger) -> None:
    mixed = replace(TOKEN, scopes=("viewer", "author", "viewer"))
    put(ledger, OTHER, mixed, EPOCH)
    with ledger.read() as view:
        register = view.register()
    assert register.api_tokens == (TOKEN, OTHER)
    assert register.session_epochs == (EPOCH,)
    assert register.api_token("a" * 64) == TOKEN
    assert register.api_token("c" * 64) is None
    assert register.session_epoch(ALICE) == 3
    assert register.session_epoch("bob@REALM.TEST") == FIRST_EPOCH


def test_a_token_and_an_epoch_are_replaced_as_a_whole(ledger: Ledger) -> None:
    put(ledger, TOKEN, EPOCH)
    register = put(ledger, REVOKED, replace(EPOCH, epoch=4))
    assert register.api_tokens == (REVOKED,)
    assert register.session_epoch(ALICE) == 4


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "changes",
    [
        {"created_by": "mallory@REALM.TEST"},
        {"expires_at": NOW + timedelta(days=366, microseconds=1)},
        {"expires_at": NOW},
        {"expires_at": NOW - timedelta(days=1)},
        {"secret_hash": "a" * 63},
        {"secret_hash": ""},
        {"revoked_by": ALICE},
        {"revoked_at": NOW},
    ],
    ids=str,
)
def test_no_database_takes_a_token_for_another_or_for_ever(ledger: Ledger, changes: dict[str, Any]) -> None:
    with pytest.raises(Defect) as caught:
        put(ledger, replace(TOKEN, **changes))
    assert caught.value.code == "db.integrity"
    with ledger.read() as view:
        assert view.register() == Register(0)


@pytest.mark.threat("T40")
@pytest.mark.parametrize("row", [replace(OTHER, secret_hash=TOKEN.secret_hash), replace(EPOCH, epoch=0)], ids=str)
def test_no_database_takes_one_secret_twice_or_an_epoch_that_is_none(
    ledger: Ledger, row: ApiToken | SessionEpoch
) -> None:
    put(ledger, TOKEN)
    with pytest.raises(Defect) as caught:
        put(ledger, row)
    assert caught.value.code == "db.integrity"


def test_when_a_token_was_used_is_no_change_of_the_register(ledger: Ledger) -> None:
    put(ledger, TOKEN)
    for hours in (0, 1):
        with ledger.begin() as tx:
            tx.note_api_token_use(TOKEN.token_id, NOW + timedelta(hours=hours))
            assert tx.edits() == ()
    with ledger.read() as view:
        assert view.api_token_uses() == {TOKEN.token_id: NOW + timedelta(hours=1)}
        assert view.register_head().revision == 1


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "change",
    [lambda tx: tx.put_api_token(TOKEN), lambda tx: tx.put_session_epoch(EPOCH)],
    ids=["a token", "an epoch"],
)
def test_nothing_of_it_is_stored_without_a_seal(ledger: Ledger, change: Callable[[Any], None]) -> None:
    with pytest.raises(Defect) as caught, ledger.begin() as tx:
        change(tx)
    assert caught.value.code == "register.unsealed"


@pytest.mark.threat("T40")
def test_the_seal_covers_every_member(ledger: Ledger) -> None:
    other = {
        "token_id": "X",
        "secret_hash": "f" * 64,
        "principal": "oli@REALM.TEST",
        "scopes": ("operator",),
        "note": "x",
        "created_by": "oli@REALM.TEST",
        "created_at": NOW + timedelta(microseconds=1),
        "expires_at": NOW + timedelta(days=365),
        "revoked_at": NOW,
        "revoked_by": ALICE,
    }
    changed = [replace(TOKEN, **{name: value}) for name, value in other.items()]
    registers = [Register(1), *(Register(1, api_tokens=(one,)) for one in (TOKEN, *changed))]
    epochs = [
        EPOCH,
        replace(EPOCH, principal="x"),
        replace(EPOCH, epoch=4),
        replace(EPOCH, changed_by="x"),
        replace(EPOCH, changed_at=NOW + timedelta(microseconds=1)),
    ]
    registers += [Register(1, session_epochs=(one,)) for one in epochs]
    registers += [Register(1, api_tokens=(TOKEN,), session_epochs=(EPOCH,))]
    assert len({digest(one) for one in registers}) == len(registers) == 2 + len(other) + len(epochs) + 1
