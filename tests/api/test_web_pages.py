"""The pages: who reads them knows what they confirm; nothing that a stranger wrote is more than text on them."""

from __future__ import annotations

from datetime import timedelta

import httpx2
import pytest

from bridge.errors import RequestRefused
from bridge.people.linking import FLOW_LIFE
from bridge.web.account import ConsentForm
from bridge.web.forms import MAX_FORM_BYTES, parsed
from bridge.web.pages import origin
from tests.api.people_web import FORM, URL, Forms, Site, only_form, refused, ticket
from tests.fakes import FakePerson
from tests.unit.core.bench import ISSUER

STATIC = {
    "a", "bdi", "body", "button", "code", "dd", "dl", "dt", "form", "h1", "h2", "head", "header", "html", "input",
    "label", "link", "main", "meta", "option", "p", "section", "select", "strong", "table", "tbody", "td", "th",
    "thead", "title", "tr",
}  # fmt: skip
"""All tags of the templates; a script is none of them."""


def active(site: Site, user_id: int) -> str | None:
    """The account that a GitLab user is linked to."""
    link = site.broker.register.read().active_link(ISSUER, user_id)
    return None if link is None else link.account


def test_a_person_links_their_gitlab_user_by_two_proofs_and_a_yes(web_site: Site) -> None:
    begin = web_site.page("mallory", "/link")
    assert ("https://bridge.realm.test:8443/link/start", {"issuer": ISSUER}) in Forms(begin.text).forms
    state = web_site.state("mallory")
    asked = web_site.back("mallory", state, "103:mallory")
    assert active(web_site, 103) is None
    for text in ("mallory</bdi>", "number 103", ISSUER, "uid 20003"):
        assert text in asked.text

    done = web_site.post("mallory", "/link/confirm", only_form(asked.text))
    assert (done.status_code, done.headers["location"]) == (303, f"{URL}/link")
    assert active(web_site, 103) == "mallory"
    after = web_site.page("mallory", "/link").text
    assert "(103)" in after
    end = next(fields for action, fields in Forms(after).forms if action == f"{URL}/link/end")
    assert web_site.post("mallory", "/link/end", end).status_code == 303
    assert active(web_site, 103) is None


@pytest.mark.threat("T16")
def test_the_state_of_one_person_is_of_no_use_to_another(web_site: Site) -> None:
    state = web_site.state("mallory")
    refused(web_site.back("alice", state, "103:mallory"), 403, "link.foreign")
    assert web_site.broker.sign_in.used == set()


@pytest.mark.threat("T16")
def test_what_one_person_was_asked_another_can_not_confirm(web_site: Site) -> None:
    fields = only_form(web_site.back("mallory", web_site.state("mallory"), "103:mallory").text)
    refused(web_site.post("alice", "/link/confirm", fields), 403, "link.foreign")
    assert active(web_site, 103) is None


@pytest.mark.threat("T16")
@pytest.mark.parametrize("spoil", ["state", "code", "late", "forged", "purpose"])
def test_a_step_of_the_flow_counts_once_in_time_and_as_it_was(web_site: Site, spoil: str) -> None:
    state = web_site.state("mallory")
    if spoil == "late":
        web_site.broker.clock.shift = FLOW_LIFE + timedelta(seconds=1)
        refused(web_site.back("mallory", state, "103:mallory"), 403, "flow.expired")
    elif spoil == "forged":
        refused(web_site.back("mallory", f"{state[:-4]}AAAA", "103:mallory"), 403, "flow.invalid")
    elif spoil == "purpose":
        refused(web_site.post("mallory", "/link/confirm", {"confirmation": state}), 403, "flow.invalid")
    else:
        assert web_site.back("mallory", state, "103:mallory").status_code == 200
        again = state if spoil == "state" else web_site.state("mallory")
        refused(web_site.back("mallory", again, "103:mallory"), 403, "oauth.refused")
    assert active(web_site, 103) is None


@pytest.mark.threat("T16")
def test_a_gitlab_user_who_is_somebodys_becomes_nobody_elses(web_site: Site) -> None:
    refused(web_site.back("mallory", web_site.state("mallory"), "102:bob"), 409, "link.taken")
    fields = [only_form(web_site.back(who, web_site.state(who), f"103:{who}").text) for who in ("mallory", "alice")]
    assert web_site.post("mallory", "/link/confirm", fields[0]).status_code == 303
    refused(web_site.post("alice", "/link/confirm", fields[1]), 409, "link.taken")
    assert active(web_site, 103) == "mallory"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("error=access_denied&error_description=Call+0900-EVIL", 403, "link.not_authorized"),
        ("error=<script>&state=x&code=y", 403, "link.not_authorized"),
        ("", 422, "request.invalid"),
        ("state=x", 422, "request.invalid"),
        ("code=x", 422, "request.invalid"),
        ("state=x&code=y&code=z", 422, "request.invalid"),
        ("state=x&state=x&code=y", 422, "request.invalid"),
        ("state=x%0ay&code=y", 422, "request.invalid"),
        (f"state={'x' * 4097}&code=y", 422, "request.invalid"),
        ("state=x&code=y", 403, "flow.invalid"),
    ],
)
def test_what_comes_back_from_elsewhere_is_not_believed(still_site: Site, query: str, status: int, code: str) -> None:
    answer = still_site.page("mallory", f"/link/callback?{query}")
    refused(answer, status, code)
    assert "EVIL" not in answer.text
    assert "<script" not in answer.text


@pytest.mark.threat("T45")
@pytest.mark.parametrize(
    "login",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</bdi></strong><h1>Confirm now</h1>",
        "{{ 7 * 7 }}{% include 'page.html' %}",
        "ecila\u202e",
        "a\u2066b\u2069",
        "al\u200bice",
        "alice\x1b[2J\r\nSet-Cookie: a=b",
        "\ufeffalice",
        "&lt;script&gt;",
    ],
    ids=ascii,
)
def test_a_login_is_never_more_than_text(web_site: Site, monkeypatch: pytest.MonkeyPatch, login: str) -> None:
    monkeypatch.setattr(web_site.broker.sign_in, "person", lambda code, verifier: FakePerson(103, login))
    confirm = web_site.back("mallory", web_site.state("mallory"), "x")
    assert web_site.post("mallory", "/link/confirm", only_form(confirm.text)).status_code == 303
    for page in (confirm, web_site.page("mallory", "/link")):
        found = Forms(page.text)
        assert found.tags <= STATIC
        assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "style")]
        assert page.text.count("<h1>") == 1
        assert all(one.isprintable() or one == "\n" for one in page.text)
        assert ">49<" not in page.text
        assert "{{ 7 * 7 }}" not in login or "7 * 7" in page.text
        assert "set-cookie" not in page.headers


@pytest.mark.threat("T41")
def test_every_page_is_closed_to_frames_scripts_caches_and_other_sites(web_site: Site) -> None:
    state = web_site.state("mallory")
    pages = [
        web_site.page("mallory", "/link"),
        web_site.back("mallory", state, "103:mallory"),
        web_site.back("mallory", "x", "y"),
        web_site.page(None, "/link"),
        web_site.post("mallory", "/link/start", {"issuer": "https://evil.test"}),
        web_site.post("mallory", "/link/start", {"issuer": ISSUER}),
    ]
    for page in pages:
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["x-content-type-options"] == "nosniff"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "set-cookie" not in page.headers
    for page in pages[:-1]:
        assert f"form-action 'self' {ISSUER};" in page.headers["content-security-policy"]
        assert {"script", "style", "iframe", "img"}.isdisjoint(Forms(page.text).tags)


def test_a_browser_without_a_ticket_is_asked_for_one_and_told_how(web_site: Site) -> None:
    answer = web_site.page(None, "/link")
    refused(answer, 401, "negotiate.required")
    assert answer.headers["www-authenticate"] == "Negotiate"
    assert "kinit" in answer.text


def test_the_style_sheet_is_there_for_everybody(web_site: Site) -> None:
    answer = web_site.http.get("/assets/page.css")
    assert answer.headers["content-type"].startswith("text/css")
    assert "prefers-color-scheme: dark" in answer.text
    assert "url(" not in answer.text


def test_an_owner_says_on_the_page_who_may_act_as_them(web_site: Site) -> None:
    def say(**fields: str) -> httpx2.Response:
        return web_site.post("alice", "/link/consent", fields)

    assert say(act="deny", issuer=ISSUER, project_id="7").status_code == 303
    assert say(act="stop").status_code == 303
    page = web_site.page("alice", "/link").text
    assert "You have stopped all CI jobs" in page
    assert "<td>denied</td>" in page
    assert say(act="resume", issuer=ISSUER).status_code == 303
    assert say(act="only-listed").status_code == 303
    assert "Only the projects that you allowed" in web_site.page("alice", "/link").text
    refused(say(act="allow"), 422, "request.invalid")
    refused(say(act="stop", issuer=ISSUER, project_id="7"), 422, "request.invalid")
    refused(say(act="deny", issuer="https://evil.test", project_id="7"), 422, "consent.project")


@pytest.mark.threat("T38")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"act=stop&act=deny",
        b"act=stop&account=bob",
        b"act",
        b"act=stop&",
        b"&act=stop",
        b"act=%ff",
        b"act=%ed%a0%80",
        b"act=stop\xff",
        b"act=STOP",
        b"act=stop&project_id=007&issuer=x",
        b"act=stop&project_id=-1",
        b"act=stop&project_id=1e3",
        b"act=stop&project_id=" + b"9" * 40,
        b"act=stop;x=y",
        b"&".join(b"f%d=x" % number for number in range(9)),
        b'{"act": "stop"}',
    ],
    ids=repr,
)
def test_a_form_that_is_not_ours_is_refused(still_site: Site, body: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        parsed(ConsentForm, body)
    assert caught.value.code == "request.invalid"
    refused(still_site.post("alice", "/link/consent", body), 422, "request.invalid")
    assert still_site.client.asked == []


@pytest.mark.threat("T38")
@pytest.mark.parametrize("size", [MAX_FORM_BYTES + 1, 300 * 1024])
def test_a_long_form_is_cut_off(still_site: Site, size: int) -> None:
    refused(still_site.post("alice", "/link/consent", b"act=" + b"x" * size), 413, "request.too_large")
    headers = ticket("alice") | {"Origin": URL, "Content-Type": FORM}
    in_pieces = iter([b"x" * 4096] * (size // 4096 + 1))
    refused(still_site.http.post("/link/consent", content=in_pieces, headers=headers), 413, "request.too_large")
    assert still_site.client.asked == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://bridge.realm.test:8443", "https://bridge.realm.test:8443"),
        ("https://bridge.realm.test:443/ci/", "https://bridge.realm.test"),
        ("https://bridge.realm.test/ci", "https://bridge.realm.test"),
    ],
)
def test_the_origin_is_as_browsers_write_it(url: str, expected: str) -> None:
    assert origin(url) == expected
