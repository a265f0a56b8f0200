"""The way from ``/link`` through GitLab's sign-in and back: two proofs, one person, and a yes of its own.

Somebody may have signed the victim's browser in to GitLab as themselves, and then have let it run through all of this;
so that nothing is linked before the person has read who would become them, and has said yes by a form of ours.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field

from bridge.api.callers import Presenter
from bridge.api.cross_site import from_own_page
from bridge.api.problems import invalid
from bridge.errors import PolicyRefused
from bridge.web.account import PagesOfApp
from bridge.web.forms import Form, posted
from bridge.web.pages import PageRoute

router = APIRouter(prefix="/link", route_class=PageRoute)

FROM_OUR_PAGE = [Depends(from_own_page)]

_CARRIED: Final = r"^[\x21-\x7e]{1,4096}$"
Carried = Annotated[str | None, Query(pattern=_CARRIED)]


class StartForm(Form):
    """Which GitLab."""

    issuer: str = Field(min_length=1, max_length=1024)


class ConfirmForm(Form):
    """What the page of the callback gave: sealed by the broker, for this person only."""

    confirmation: str = Field(pattern=_CARRIED)


@router.post("/start", dependencies=FROM_OUR_PAGE)
async def start(
    person: Presenter, form: Annotated[StartForm, Depends(posted(StartForm))], shown: PagesOfApp
) -> Response:
    """Send the browser to GitLab."""
    return shown.go(person, (await person.ask("link_start", issuer=form.issuer))["address"])


@router.get("/callback")
async def callback(
    request: Request, person: Presenter, shown: PagesOfApp, state: Carried = None, code: Carried = None
) -> Response:
    """Take the browser back from GitLab (RFC 6749 section 4.1.2), and ask whether what was found is so.

    What GitLab says in ``error_description`` is not shown: anybody can write such an address.
    """
    if "error" in request.query_params:
        raise PolicyRefused(
            "link.not_authorized",
            "GitLab did not tell the bridge who you are.",
            "Begin again on the bridge's page /link, and authorize the bridge when GitLab asks.",
        )
    given = request.query_params.getlist("state") + request.query_params.getlist("code")
    if state is None or code is None or len(given) != 2:
        raise invalid()
    found = (await person.ask("link_found", state=state, code=code))["found"]
    return shown.show(person, "confirm.html", found=found)


@router.post("/confirm", dependencies=FROM_OUR_PAGE)
async def confirm(
    person: Presenter, form: Annotated[ConfirmForm, Depends(posted(ConfirmForm))], shown: PagesOfApp
) -> Response:
    """Link what the person has read and confirmed."""
    await person.ask("link_confirm", confirmation=form.confirmation)
    return shown.go(person, f"{shown.home}/link")
