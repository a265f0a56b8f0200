"""Whether a run that policy allowed may go on: no kill switch stops it, its link stands, the account's owner agrees.

Asked in the transaction that writes an intent, so that nothing fits in between; the broker asks with the register that
it has checked, web with the one in the tables, since web's answer can only stop more.
"""

from __future__ import annotations

from bridge.audit.kills import refusal, stops
from bridge.audit.ledger import View
from bridge.errors import PolicyRefused
from bridge.model import Grant
from bridge.register import Consent, ConsentMode, LinkState, ProjectRef, Register, RegisterHead


class RegisterCache:
    """The register as the tables have it, read anew when its head has changed; safe to use from many threads."""

    def __init__(self) -> None:
        self._known: tuple[RegisterHead, Register] | None = None

    def current(self, view: View) -> Register:
        """Return the register of ``view``, checked by nobody."""
        head, known = view.register_head(), self._known
        if known is not None and known[0] == head:
            return known[1]
        register = view.register()
        self._known = (head, register)
        return register


def require_standing(register: Register, grant: Grant) -> None:
    """Pass where nothing stops the grant; raises PolicyRefused ``killed.*``, ``link.ended`` or ``consent.*``."""
    error = objection(register, grant)
    if error is not None:
        raise error


def objection(register: Register, grant: Grant) -> PolicyRefused | None:
    """The refusal for a run that must not go on, or None."""
    for switch in register.switches_in_force:
        if stops(switch, grant):
            return refusal(switch)
    if grant.link_id is not None:
        link = register.link(grant.link_id)
        if link is None or link.state is not LinkState.ACTIVE:
            return _link_ended(grant)
    consent = register.consent(grant.account.name, grant.account.uid)
    return None if consent is None else _without_consent(consent, grant)


def require_asked(register: Register, grant: Grant, *, ask_first: bool) -> None:
    """Pass where the owner need not be asked first, or has allowed the project; raises PolicyRefused ``consent.*``.

    ``ask_first`` is the site's rule for owners who said nothing, from ``accounts.toml``; a question of admission only.
    """
    if not ask_first:
        return
    consent = register.consent(grant.account.name, grant.account.uid)
    if consent is None or not _projects(grant) <= set(consent.allowed):
        raise _not_allowed(grant)


def _without_consent(consent: Consent, grant: Grant) -> PolicyRefused | None:
    projects = _projects(grant)
    if consent.mode.stopped:
        return PolicyRefused(
            "consent.stopped",
            f"The owner of the account {grant.account.name} has stopped all CI jobs that run as it.",
            "If that is you: 'ci-bridge consent resume' lets jobs run again.",
            account=grant.account.name,
        )
    if projects.intersection(consent.denied):
        return PolicyRefused(
            "consent.denied",
            f"The owner of the account {grant.account.name} does not let this project's jobs run as it.",
            "If that is you: 'ci-bridge consent allow' with the project's number lets them run again.",
            account=grant.account.name,
        )
    if consent.mode is ConsentMode.LISTED and not projects <= set(consent.allowed):
        return _not_allowed(grant)
    return None


def _projects(grant: Grant) -> set[ProjectRef]:
    """Whose code it is and who runs it: the owner must agree to both."""
    who = grant.identity
    return {ProjectRef(who.issuer, who.project_id), ProjectRef(who.issuer, who.job_project_id)}


def _not_allowed(grant: Grant) -> PolicyRefused:
    return PolicyRefused(
        "consent.not_given",
        f"The owner of the account {grant.account.name} has not allowed this project's jobs to run as it.",
        f"If that is you: run 'ci-bridge consent allow {grant.identity.job_project_id}' once, then the job again.",
        account=grant.account.name,
        project_id=grant.identity.project_id,
        job_project_id=grant.identity.job_project_id,
    )


def _link_ended(grant: Grant) -> PolicyRefused:
    return PolicyRefused(
        "link.ended",
        f"The link of your GitLab user to the account {grant.account.name} is no longer in force.",
        "Link your GitLab user again, or ask the cluster's administrators why it ended.",
        account=grant.account.name,
        link=grant.link_id,
    )
