"""The page ``/link``: a person's account, which GitLab users may become it, and which projects may run as it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from pydantic import Field

from bridge.api.callers import Presenter
from bridge.api.consent import Act
from bridge.api.cross_site import from_own_page
from bridge.api.problems import invalid
from bridge.api.values import Reference, Text
from bridge.web.forms import Form, posted
from bridge.web.pages import PageRoute, Pages, pages

router = APIRouter(prefix="/link", route_class=PageRoute)

FROM_OUR_PAGE = [Depends(from_own_page)]
PagesOfApp = Annotated[Pages, Depends(pages)]


class EndForm(Form):
    """Which link is to end."""

    link_id: Reference
    reason: Text = ""


class ConsentForm(Form):
    """What the owner says; ``issuer`` and ``project_id`` are blank where no project is meant."""

    act: Act
    issuer: str = Field(default="", max_length=1024)
    project_id: str = Field(default="", pattern=r"^([1-9][0-9]{0,14})?$")


@router.get("")
async def account(person: Presenter, shown: PagesOfApp) -> Response:
    """Show how the caller's account stands."""
    standing = (await person.ask("consent_show"))["standing"]
    return shown.show(person, "own_account.html", standing=standing, sign_in=shown.sign_in, issuers=shown.issuers)


@router.post("/end", dependencies=FROM_OUR_PAGE)
async def end(person: Presenter, form: Annotated[EndForm, Depends(posted(EndForm))], shown: PagesOfApp) -> Response:
    """End a link of the caller's account."""
    await person.ask("link_end", link_id=form.link_id, reason=form.reason or "ended by its owner")
    return shown.go(person, f"{shown.home}/link")


@router.post("/consent", dependencies=FROM_OUR_PAGE)
async def consent(
    person: Presenter, form: Annotated[ConsentForm, Depends(posted(ConsentForm))], shown: PagesOfApp
) -> Response:
    """Take down what the owner says."""
    about_project = form.act in ("allow", "deny")
    if about_project != bool(form.project_id and form.issuer):
        raise invalid()
    await person.ask(
        "consent_change",
        act=form.act,
        issuer=form.issuer if about_project else None,
        project_id=int(form.project_id) if about_project else None,
    )
    return shown.go(person, f"{shown.home}/link")
