"""A stage that lasts on a real login node keeps good tickets there, beyond the end of those that it began with."""

from __future__ import annotations

import json

import pytest

from realm import Realm
from realm.bridgehost import ci_bridge
from tests.e2e.person import Person

OUTLIVE = """\
ends() { date +%s -d "$(LC_ALL=C klist | sed -n 's,^[^ ]* [^ ]*  \\(.*\\)  lustre_mds/mds1.*,\\1,p')"; }
first=$(ends)
while [ "$(date +%s)" -le "$first" ]; do klist -s || echo "they have" ended; sleep 0.2; done
klist -s && [ "$(ends)" -gt "$first" ] && echo "out"lived
"""
"""Looks at the tickets until those that were there at the beginning have ended."""


@pytest.mark.usefixtures("short_tickets")
def test_a_stage_that_outlives_its_tickets_has_good_ones_all_the_time(realm: Realm, alice: Person) -> None:
    job = alice.push("true", after_script=[OUTLIVE])
    assert alice.finished(job).status == "success"
    log = alice.log(job)
    assert "\noutlived" in log, log
    assert "they have ended" not in log
    records = json.loads(ci_bridge(realm, "audit", "timeline", "--job", str(job.id), "--json"))
    for_login = [one["phase"] for one in records if one["type"] == "tickets" and one["detail"].get("use") == "login"]
    assert for_login.count("ok") >= 2
    assert for_login.count("ok") == for_login.count("intent")
