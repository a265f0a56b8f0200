"""Admission asks policy about this moment: what has ended lets nobody in, without a reload (T48)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from bench import POLICIES, Broker, refused

from bridge.policy.files import read_files


def use(broker: Broker, file: str, old: str, new: str) -> None:
    """Let the broker decide by the shipped bundle with one change."""
    texts = {name: text for name, text in read_files(POLICIES).items() if not name.startswith("cases/")}
    assert old in texts[file]
    broker.use_texts(texts | {file: texts[file].replace(old, new, 1)})


def noon(broker: Broker) -> None:
    """Set the broker's clock to noon at the site, far from any boundary."""
    broker.clock.shift = timedelta(0)
    now = broker.policy.bundle.calendar.local(broker.clock())
    broker.clock.shift = now.replace(hour=12, minute=0) - now


def today(broker: Broker) -> str:
    """The site's date by the broker's clock."""
    return broker.policy.bundle.calendar.day(broker.clock()).isoformat()


@pytest.mark.threat("T48")
@pytest.mark.threat("T18")
def test_a_permit_that_has_ended_since_the_last_job_never_admits_the_next(broker: Broker) -> None:
    noon(broker)
    permit = '@id("people-on-protected-refs")'
    use(broker, "people.cedar", permit, f'{permit}\n@expires("{today(broker)}")')
    assert broker.admission.admit(broker.evidence()).grant.policy_ids == ("people-on-protected-refs",)

    broker.clock.shift += timedelta(days=1)
    error = refused(lambda: broker.admission.admit(broker.evidence(job_id=302)))

    assert error.code == "policy.no_permit"
    assert len(broker.impersonator.asked) == 1
    assert broker.records(phase="denied")[0]["code"] == "policy.no_permit"


@pytest.mark.threat("T48")
@pytest.mark.threat("T11")
def test_a_link_that_has_ended_since_the_last_job_never_counts_for_the_next(broker: Broker) -> None:
    noon(broker)
    use(broker, "accounts.toml", 'note = "group chem"', f"expires = {today(broker)}")
    assert broker.admission.admit(broker.evidence()).grant.account.name == "alice"

    broker.clock.shift += timedelta(days=1)
    error = refused(lambda: broker.admission.admit(broker.evidence(job_id=302)))

    assert error.code == "account.expired"
    assert len(broker.impersonator.asked) == 1


def test_hours_are_those_of_the_moment_of_admission(broker: Broker) -> None:
    noon(broker)
    use(broker, "people.cedar", "when { context.ref_protected }", "when { context.hour == 12 }")
    assert broker.admission.admit(broker.evidence()).grant.limits.names == ("standard",)

    broker.clock.shift += timedelta(hours=2)
    assert refused(lambda: broker.admission.admit(broker.evidence(job_id=302))).code == "policy.no_permit"
