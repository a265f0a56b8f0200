"""Another site's page can make a person's browser send a request with their ticket; nothing comes of it."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.api.people_web import CLIENT, FORM, URL, Site, refused, ticket
from tests.unit.core.bench import ISSUER

ID = "0000-0000-0000"
CALLS: dict[str, dict[str, Any]] = {
    "/v1/links": {"issuer": ISSUER, "user_id": 103, "account": "mallory", "reason": "r"},
    f"/v1/links/{ID}/approve": {"reason": "r"},
    f"/v1/links/{ID}/reject": {"reason": "r"},
    f"/v1/links/{ID}/end": {"reason": "r"},
    "/v1/consent": {"act": "stop"},
    "/v1/kills": {"scope": "all", "reason": "r"},
    f"/v1/kills/{ID}/lift": {"reason": "r"},
}
FORMS: dict[str, dict[str, str]] = {
    "/link/start": {"issuer": ISSUER},
    "/link/confirm": {"confirmation": "x"},
    "/link/end": {"link_id": ID},
    "/link/consent": {"act": "stop"},
}
ORIGINS = [
    "https://evil.test",
    "null",
    "",
    "https://bridge.realm.test",
    "http://bridge.realm.test:8443",
    "https://bridge.realm.test:8443/",
    "https://bridge.realm.test:8443.evil.test",
    "https://bridge.realm.test:84430",
    "https://evil.test https://bridge.realm.test:8443",
    "https://x.bridge.realm.test:8443",
    "HTTPS://BRIDGE.REALM.TEST:8443",
]
Change = tuple[str, str | None]
SITES = ["cross-site", "same-site", "", "same-origin, cross-site", "SAME-ORIGIN"]
TYPES = ["text/plain", "text/plain; application/json", "application/jsonx", "multipart/form-data; boundary=x", "", None]
JSON_ATTACKS: list[Change] = [
    *(("Origin", one) for one in ORIGINS),
    *(("Sec-Fetch-Site", one) for one in SITES),
    *(("Content-Type", one) for one in [*TYPES, FORM]),
    *(("X-CI-Bridge-Client", one) for one in (None, "", "x" * 257, "caf\xe9")),
]
FORM_ATTACKS: list[Change] = [
    *(("Origin", one) for one in [*ORIGINS, None]),
    *(("Sec-Fetch-Site", one) for one in [*SITES, "none"]),
    *(("Content-Type", one) for one in [*TYPES, "application/json"]),
]


def send(web_site: Site, path: str, content: str, headers: dict[str, str], change: Change | None) -> httpx2.Response:
    """Send with one header changed, or left out."""
    name, value = change or ("X-Nothing", "1")
    given = headers | ({} if value is None else {name: value})
    if value is None:
        del given[name]
    raw = [(one.encode(), text.encode("latin-1")) for one, text in (ticket("oli") | given).items()]
    return web_site.http.request("POST", path, content=content, headers=raw)


@pytest.mark.threat("T41")
@pytest.mark.parametrize("change", JSON_ATTACKS, ids=str)
@pytest.mark.parametrize("path", CALLS)
def test_a_page_of_another_site_changes_nothing_by_the_api(still_site: Site, path: str, change: Change) -> None:
    refused(send(still_site, path, json.dumps(CALLS[path]), CLIENT, change), 403, "request.cross_site")
    assert still_site.client.asked == []


@pytest.mark.threat("T41")
@pytest.mark.parametrize("change", FORM_ATTACKS, ids=str)
@pytest.mark.parametrize("path", FORMS)
def test_a_form_of_another_site_changes_nothing(still_site: Site, path: str, change: Change) -> None:
    headers = {"Origin": URL, "Sec-Fetch-Site": "same-origin", "Content-Type": FORM}
    content = str(httpx2.QueryParams(FORMS[path]))
    answer = send(still_site, path, content, headers, change)
    refused(answer, 403, "request.cross_site")
    assert "www-authenticate" not in answer.headers
    assert still_site.client.asked == []


@pytest.mark.threat("T41")
@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "Content-Type", "X-CI-Bridge-Client"])
def test_a_header_that_is_there_twice_is_no_proof(still_site: Site, name: str) -> None:
    good = CLIENT | {"Origin": URL, "Sec-Fetch-Site": "same-origin"}
    for twice in ([good[name], good[name]], [good[name], "https://evil.test"], ["cross-site", good[name]]):
        headers = [*(good.items() - {(name, good[name])}), *((name, one) for one in twice), *ticket("oli").items()]
        answer = still_site.http.post("/v1/consent", content=json.dumps({"act": "stop"}), headers=headers)
        refused(answer, 403, "request.cross_site")
    assert still_site.client.asked == []


@pytest.mark.threat("T41")
def test_no_other_site_is_ever_allowed_to_ask(still_site: Site) -> None:
    headers = {"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"}
    for path in ("/v1/consent", "/v1/me", "/link/confirm"):
        preflight = still_site.http.options(path, headers=headers)
        read = still_site.http.get("/v1/me", headers=ticket("alice") | {"Origin": "https://evil.test"})
        assert preflight.status_code == 405
        assert not [one for one in [*preflight.headers, *read.headers] if one.startswith("access-control-")]


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": URL}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}]
)
@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
def test_our_own_programs_and_pages_are_let_in(web_site: Site, headers: dict[str, str], kind: str) -> None:
    given = CLIENT | {"Content-Type": kind} | headers | ticket("alice")
    assert web_site.http.post("/v1/consent", content=json.dumps({"act": "stop"}), headers=given).status_code == 200


def test_a_browser_without_fetch_metadata_is_let_in(web_site: Site) -> None:
    headers = ticket("alice") | {"Origin": URL, "Content-Type": FORM}
    assert web_site.http.post("/link/consent", content="act=stop", headers=headers).status_code == 303
