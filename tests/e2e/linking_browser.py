"""Runs as a person on host `desk`: a real browser goes through the linking pages by what a person sees on them.

    linking_browser.py BRIDGE_URL SPKI_HASHES LOGIN < password

Prints one JSON object: what each page showed, and what the browser was sent and loaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from playwright.sync_api import Page, Request, sync_playwright

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--auth-server-allowlist=bridge.realm.test",
)


def main(url: str, keys: str, login: str) -> None:
    """Go from /link to GitLab and back, confirm, look at the link, and end it."""
    password = sys.stdin.readline().strip()
    seen: dict[str, Any] = {"requests": [], "problems": []}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        # A profile on disk: in private windows, which Playwright's other contexts are, Chromium shows no tickets.
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path="/usr/bin/chromium",
            headless=True,
            args=[*_FLAGS, f"--ignore-certificate-errors-spki-list={keys}"],
            # Without JavaScript, so that nothing can come to need it.
            java_script_enabled=False,
            color_scheme="dark",
        )
        page = context.new_page()
        page.on("request", lambda one: seen["requests"].append(_told(one)))
        page.on("console", lambda one: seen["problems"].append(one.text))
        _walk(page, url, login, password, seen)
        _lure(page, url, seen)
        seen["cookies"] = [one["domain"] for one in context.cookies()]
        context.close()
    print(json.dumps(seen))


def _walk(page: Page, url: str, login: str, password: str, seen: dict[str, Any]) -> None:
    page.goto(f"{url}/link")
    # Chromium loads GSSAPI at the first challenge, and has no answer to that one (ERR_UNSUPPORTED_AUTH_SCHEME).
    page.reload()
    seen["before"] = page.inner_text("main")
    if "Your account" not in seen["before"]:
        raise SystemExit(seen["before"])
    seen["background"] = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    page.get_by_role("button", name="Link my user of").click()
    page.locator('[name="user[login]"]').fill(login)
    page.locator('[name="user[password]"]').fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Authorize").click()
    page.get_by_role("heading", name="Is this GitLab user you?").wait_for()
    seen["question"] = page.inner_text("main")
    page.get_by_role("button", name="Yes, let").click()
    page.get_by_role("button", name="End the link").wait_for()
    seen["after"], seen["address"] = page.inner_text("main"), page.url
    page.get_by_role("button", name="End the link").click()
    page.get_by_text("No GitLab user is linked to your account.").wait_for()
    seen["ended"] = page.inner_text("main")


def _lure(page: Page, url: str, seen: dict[str, Any]) -> None:
    """Another site's page posts the form in the person's name, and puts the page into a frame."""
    fields = '<input name="act" value="stop"><button>Win a prize</button>'
    form = f'<form method="post" action="{url}/link/consent">{fields}</form>'
    for name, elsewhere in (("from_site", "https://gitlab.realm.test/users/sign_in"), ("from_nowhere", "about:blank")):
        page.goto(elsewhere)
        page.set_content(form)
        page.get_by_role("button").click()
        page.locator(".small").wait_for()
        seen[name] = page.inner_text("main")
    page.goto("https://gitlab.realm.test/users/sign_in")
    page.set_content(f'<iframe src="{url}/link"></iframe>')
    page.wait_for_load_state("networkidle")
    seen["framed"] = page.frames[1].content()


def _told(request: Request) -> dict[str, Any]:
    return {"method": request.method, "url": request.url.partition("?")[0]}


if __name__ == "__main__":
    main(*sys.argv[1:])
