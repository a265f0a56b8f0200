"""What a bundle means is worked out within a time, whatever the bundle is, and makes room for the next."""

from __future__ import annotations

import pytest

from bridge.api.admin import advice
from tests.api.admin_site import Admin
from tests.api.people_web import refused


@pytest.mark.threat("T38")
def test_no_question_about_a_bundle_takes_a_place_for_good(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = {"files": admin.files("new")}
    with monkeypatch.context() as short:
        short.setattr(advice, "WORK_SECONDS", 0.0)
        for _ in range(advice.AT_ONCE + 1):
            refused(admin.get("vic", "/bundles/active/matrix"), 422, "advice.too_long")
        refused(admin.get("vic", "/bundles/active/who-can?account=alice"), 422, "advice.too_long")
        refused(admin.get("vic", "/bundles/active/test"), 422, "advice.too_long")
        for what in ("validate", "test", "diff"):
            refused(admin.post("vic", f"/bundles/{what}", draft), 422, "advice.too_long")
    assert admin.get("vic", "/bundles/active/matrix").status_code == 200
