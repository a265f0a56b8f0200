"""Why a job was decided as it was is told by the question that the log tells of, and by no other."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.api.admin_site import Admin
from tests.api.people_web import refused


@pytest.mark.threat("T44")
def test_nobody_has_another_question_explained_than_was_asked(admin: Admin) -> None:
    broker = admin.web.broker
    reference = broker.admission.admit(broker.evidence()).reference
    other = broker.admission.admit(broker.evidence(302, 102)).reference
    path = f"/decisions/{reference}"
    assert admin.get("vic", path).json()["explanation"]["account"] == "alice"
    swap = "UPDATE decisions SET question = (SELECT question FROM decisions WHERE reference = :other)"
    with broker.engine.begin() as connection:
        connection.execute(text(f"{swap} WHERE reference = :reference"), {"other": other, "reference": reference})
    refused(admin.get("vic", path), 500, "decision.changed")
    with broker.engine.begin() as connection:
        connection.execute(text("DELETE FROM decisions"))
    told = admin.get("vic", path)
    assert (told.status_code, told.json()["explanation"]) == (200, None)


def test_the_beginning_of_a_session_is_kept_for_no_second_request(admin: Admin) -> None:
    answer = admin.post("vic", "/sessions", {}, idempotency_key="x" * 32)
    refused(answer, 422, "idempotency.not_here")
    assert "set-cookie" not in answer.headers
