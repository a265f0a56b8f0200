"""How a GitLab user and an account come to be linked, and how that ends. Runs in the broker.

Self-service: the person shows a Kerberos ticket and logs in at GitLab, in one flow, and confirms what was found. By
administrators: one proposes, another approves. Nothing is kept between the steps of a flow but what the person's
browser carries under our seal, so that any broker can take the next step.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from bridge.audit.ledger import Tx
from bridge.audit.record import RecordType, Target
from bridge.errors import Conflict, NotFound, PolicyRefused, RequestRefused
from bridge.model import PosixAccount
from bridge.people.acts import Acts, act_record
from bridge.people.callers import Caller
from bridge.people.reason import checked_reason
from bridge.people.tokens import SealedToken, TokenSeal
from bridge.policy.accounts import AccountRow, AccountRules, check
from bridge.policy.directory import Directory
from bridge.policy.roles import Role
from bridge.references import new_reference
from bridge.register import Link, LinkMethod, LinkState, Register
from bridge.sealed import SealedRegister

FLOW_LIFE: Final = timedelta(minutes=10)
"""From the start page to the confirmation."""


MAX_LINKS: Final = 100
"""Of one account, those that have ended too: the register is read whole."""

_NONCE_BYTES: Final = 24


class Person(Protocol):
    """Whom GitLab says that somebody is, see ``oidc.oauth``."""

    @property
    def user_id(self) -> int:
        """GitLab's number."""
        ...

    @property
    def login(self) -> str:
        """For people to read."""
        ...


class SignIn(Protocol):
    """One GitLab's sign-in (OAuth 2.0 code flow with PKCE), see ``oidc.oauth.OAuthClient``."""

    def authorization_url(self, state: str, code_challenge: str) -> str:
        """Return where the browser goes."""
        ...

    def challenge(self, verifier: str) -> str:
        """Return the S256 challenge of a verifier."""
        ...

    def person(self, code: str, verifier: str) -> Person:
        """Return who signed in; raises TokenRefused ``oauth.*``, Outage ``oauth.*``."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """Both proofs together, for the person to confirm."""

    issuer: str
    user_id: int
    user_login: str
    account: str
    uid: int
    confirmation: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkDesk:
    """Links and unlinks; every part is passed in."""

    register: SealedRegister
    acts: Acts
    rules: Callable[[], AccountRules]
    directory: Directory
    sign_in: Mapping[str, SignIn]
    """By issuer; a GitLab that is not here has no self-service."""
    issuers: frozenset[str]
    seal: TokenSeal
    clock: Callable[[], datetime]

    def start(self, caller: Caller, issuer: str) -> str:
        """Return the address at GitLab where the person logs in; raises BridgeError."""
        with self._refusals("start", caller):
            self._own_account(caller)
            client = self._client(issuer)
            nonce = self.seal.nonce(_NONCE_BYTES)
            state = self._token("link-state", caller, issuer=issuer, nonce=nonce)
            return client.authorization_url(state, client.challenge(self._verifier(nonce)))

    def found(self, caller: Caller, state: str, code: str) -> Found:
        """Return what the person is to confirm, after GitLab has sent them back; raises BridgeError."""
        with self._refusals("return", caller):
            account = self._own_account(caller)
            flow = self.seal.open("link-state", state, self.clock())
            _require_same(caller, flow)
            issuer = str(flow["issuer"])
            person = self._client(issuer).person(code, self._verifier(str(flow["nonce"])))
            self._require_free(self.register.read(), issuer, person.user_id, account.name)
            facts: dict[str, str | int] = {
                "issuer": issuer,
                "user_id": person.user_id,
                "user_login": person.login,
                "account": account.name,
                "uid": account.uid,
            }
            confirmation = self._token("link-found", caller, link_id=new_reference(), **facts)
            return Found(**facts, confirmation=confirmation)  # type: ignore[arg-type]

    def confirm(self, caller: Caller, confirmation: str) -> Link:
        """Link what was found, as the person now says; raises BridgeError."""
        with self._refusals("confirm", caller):
            account = self._own_account(caller)
            flow = self.seal.open("link-found", confirmation, self.clock())
            _require_same(caller, flow)
            if (flow["account"], flow["uid"]) != (account.name, account.uid):
                raise _flow_foreign(caller)
            now = self.clock()
            link = Link(
                link_id=str(flow["link_id"]),
                issuer=str(flow["issuer"]),
                user_id=int(flow["user_id"]),
                user_login=str(flow["user_login"]),
                account=account.name,
                uid=account.uid,
                method=LinkMethod.SELF_SERVICE,
                state=LinkState.ACTIVE,
                proposed_by=caller.principal,
                proposed_at=now,
                reason="linked by its owner",
                decided_by=caller.principal,
                decided_at=now,
            )
            with self.register.begin() as (tx, register):
                if register.link(link.link_id) is not None:
                    # One sign-in makes one link: who has ended it signs in again.
                    raise _flow_used(caller)
                self._require_free(register, link.issuer, link.user_id, link.account)
                self._put(tx, link, "linked", caller)
            return link

    def propose(self, caller: Caller, issuer: str, user_id: int, account: str, reason: str) -> Link:
        """Propose a link as an administrator; it counts once somebody else has approved it. Raises BridgeError."""
        with self._refusals("propose", caller):
            caller.require(Role.AUTHOR)
            self._require_admin_links()
            if issuer not in self.issuers:
                raise _no_such_issuer()
            found = self._fit(account)
            link = Link(
                link_id=new_reference(),
                issuer=issuer,
                user_id=user_id,
                user_login="",
                account=found.name,
                uid=found.uid,
                method=LinkMethod.ADMIN,
                state=LinkState.PROPOSED,
                proposed_by=caller.principal,
                proposed_at=self.clock(),
                reason=_why(reason),
            )
            with self.register.begin() as (tx, register):
                self._require_free(register, issuer, user_id, found.name)
                self._put(tx, link, "proposed", caller)
            return link

    def decide(self, caller: Caller, link_id: str, *, approve: bool, reason: str) -> Link:
        """Approve or reject what somebody else proposed, by a ticket for that very request; raises BridgeError."""
        with self._refusals("approve" if approve else "reject", caller):
            caller.require(Role.APPROVER)
            caller.require_person()
            caller.require_bound()
            with self.register.begin() as (tx, register):
                link = _one(register, link_id, LinkState.PROPOSED)
                if approve:
                    self._require_admin_links()
                    _require_four_eyes(caller, link)
                    self._fit(link.account, link.uid)
                    self._require_free(register, link.issuer, link.user_id, link.account)
                decided = dataclasses.replace(
                    link,
                    state=LinkState.ACTIVE if approve else LinkState.REJECTED,
                    decided_by=caller.principal,
                    decided_at=self.clock(),
                )
                self._put(tx, decided, "approved" if approve else "rejected", caller, _why(reason))
            return decided

    def end(self, caller: Caller, link_id: str, reason: str) -> Link:
        """End a link that is in force: its account's owner, or an operator; raises BridgeError."""
        with self._refusals("end", caller):
            with self.register.begin() as (tx, register):
                link = self._visible(caller, register, link_id)
                if link.account != caller.account:
                    caller.require(Role.OPERATOR)
                link = _one(register, link_id, LinkState.ACTIVE)
                ended = dataclasses.replace(
                    link, state=LinkState.REVOKED, ended_by=caller.principal, ended_at=self.clock()
                )
                self._put(tx, ended, "ended", caller, _why(reason))
            return ended

    def links(self, caller: Caller) -> tuple[Link, ...]:
        """Return the links that the caller may see: all for administrators, their own for everybody else."""
        register = self.register.read()
        if caller.roles:
            return register.links
        return tuple(one for one in register.links if caller.account is not None and one.account == caller.account)

    def _visible(self, caller: Caller, register: Register, link_id: str) -> Link:
        """A link that the caller may know of; whose else it is looks like none at all (T50)."""
        link = register.link(link_id)
        if link is None or not (caller.roles or link.account == caller.account):
            raise _unknown(link_id)
        return link

    def _put(self, tx: Tx, link: Link, act: str, caller: Caller, reason: str = "") -> None:
        tx.put_link(link)
        facts: dict[str, str | int | bool] = {
            "issuer": link.issuer,
            "user_id": link.user_id,
            "method": link.method.value,
            "reason": reason or link.reason,
        }
        target = Target(account=link.account, uid=link.uid)
        tx.append(act_record(RecordType.LINK, act, caller.principal, link.link_id, facts, target))

    def _own_account(self, caller: Caller) -> PosixAccount:
        if not self.rules().self_service:
            raise PolicyRefused(
                "link.no_self_service",
                "People do not link their GitLab users themselves on this cluster.",
                "Ask the cluster's administrators to link your GitLab user to your account.",
            )
        caller.require_ticket()
        return self._fit(caller.require_account())

    def _require_admin_links(self) -> None:
        if not self.rules().admin_links:
            raise PolicyRefused(
                "link.no_admin_links",
                "Administrators do not link accounts on this cluster.",
                "Set links.admin in accounts.toml, or write a row there.",
            )

    def _fit(self, name: str, uid: int | None = None) -> PosixAccount:
        """The account as it is now, fit to be somebody's; pinned to itself where nobody pinned it before."""
        account = self.directory.lookup(name)
        check(self.rules(), AccountRow("", 1, name, account.uid if uid is None else uid), account)
        return account

    def _require_free(self, register: Register, issuer: str, user_id: int, account: str) -> None:
        row = self.rules().rows.get((issuer, user_id))
        link = register.active_link(issuer, user_id)
        known = {one.account for one in (row, link) if one is not None}
        if known - {account}:
            raise Conflict(
                "link.taken",
                "This GitLab user is linked to another account already.",
                "End the other link first, or ask the administrators to.",
                issuer=issuer,
                user_id=user_id,
            )
        if known:
            raise Conflict(
                "link.exists",
                "This GitLab user is linked to this account already.",
                "Nothing is to be done.",
                issuer=issuer,
                user_id=user_id,
            )
        if sum(one.account == account for one in register.links) >= MAX_LINKS:
            raise Conflict(
                "link.too_many",
                f"The account {account} has had {MAX_LINKS} links, which is the most.",
                "Ask the cluster's administrators for a row in accounts.toml.",
                account=account,
            )

    def _client(self, issuer: str) -> SignIn:
        client = self.sign_in.get(issuer)
        if client is None:
            raise _no_such_issuer()
        return client

    def _token(self, purpose: str, caller: Caller, **facts: str | int) -> str:
        return self.seal.make(purpose, {"principal": caller.principal, **facts}, self.clock() + FLOW_LIFE)

    def _verifier(self, nonce: str) -> str:
        """The PKCE verifier (RFC 7636 section 4.1) of a flow: 43 characters that only we can make again."""
        return base64.urlsafe_b64encode(self.seal.secret("link-pkce", nonce)).rstrip(b"=").decode()

    def _refusals(self, act: str, caller: Caller) -> AbstractContextManager[None]:
        return self.acts.refusals(RecordType.LINK, act, caller.principal)


def _require_same(caller: Caller, flow: SealedToken) -> None:
    if flow["principal"] != caller.principal:
        raise _flow_foreign(caller)


def _require_four_eyes(caller: Caller, link: Link) -> None:
    if caller.principal == link.proposed_by:
        raise PolicyRefused(
            "link.four_eyes",
            "Nobody approves what they proposed themselves.",
            "Ask another approver to look at it.",
            link=link.link_id,
        )


def _one(register: Register, link_id: str, state: LinkState) -> Link:
    link = register.link(link_id)
    if link is None:
        raise _unknown(link_id)
    if link.state is not state:
        raise Conflict(
            "link.state",
            f"This link is {link.state.value} already.",
            "See 'ci-bridge account links' for how it stands.",
            link=link_id,
        )
    return link


def _unknown(link_id: str) -> NotFound:
    return NotFound(
        "link.unknown", "There is no such link.", "See 'ci-bridge account links' for those there are.", link=link_id
    )


def _no_such_issuer() -> RequestRefused:
    return RequestRefused(
        "link.issuer",
        "The bridge does not link users of this GitLab.",
        "Name a GitLab of the bridge's settings; for self-service it must have an oauth_client_id there.",
    )


def _flow_foreign(caller: Caller) -> PolicyRefused:
    return PolicyRefused(
        "link.foreign",
        "This sign-in was begun by somebody else.",
        "Begin again on the bridge's page /link, and go on with links from nobody else.",
        principal=caller.principal,
    )


def _flow_used(caller: Caller) -> Conflict:
    return Conflict(
        "link.used",
        "This sign-in has made its link already.",
        "Begin again on the bridge's page /link.",
        principal=caller.principal,
    )


def _why(reason: str) -> str:
    return checked_reason(reason, "link.reason", "A link needs a reason for the record.")
