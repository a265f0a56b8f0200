"""Asks the bridge over HTTPS with HTTP Negotiate (RFC 4559) by the node's host key, and checks who answers."""

from __future__ import annotations

import base64
import email.utils
import http.client
import json
import os
import ssl
import time
import urllib.parse

import gssapi
from gssapi.raw import ChannelBindings
from gssapi.raw.misc import GSSError

from runner.binding import node_binding
from runner.ccache import MAX_CACHE_BYTES
from runner.node.settings import Settings

STEP_SECONDS = 5.0
"""For each connection, send and receive."""

MAX_SKEW_SECONDS = 300
"""What services bear (krb5.conf(5), clockskew)."""

_OVER = ("killed.", "consent.", "link.", "job.", "run.ended", "run.over_time")
"""Beginnings of the codes that say that a run is over. Asking again changes nothing, and the node is not to blame."""

SPNEGO = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
"""RFC 4178."""


class NotOurs(Exception):
    """The bridge knows no such job of its own."""


class RunOver(Exception):
    """The job's run was ended or stopped: it gets no tickets, and the bridge is about to cancel it."""


class NoAnswer(Exception):
    """The bridge did not answer, or not in a way that can be trusted; ``wait`` seconds before asking again."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class Impostor(Exception):
    """Who answered did not prove to be the bridge."""


class WrongClock(Exception):
    """This node's clock and the bridge's differ by more than Kerberos bears."""


class Bridge:
    """A connection to the bridge as this node; ``deadline`` (monotonic seconds) bounds all of it."""

    def __init__(self, settings: Settings, deadline: float) -> None:
        self._settings = settings
        self._deadline = deadline
        parts = urllib.parse.urlsplit(settings.bridge_url)
        self._host, self._port = parts.hostname or "", parts.port or 443

    def ask(self, purpose: str, job_id: int, uid: int) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask for a job's ``tickets``, or say that they were ``released``; raises NotOurs, RunOver, NoAnswer, Impostor,
        WrongClock.

        The token that says who we are is good for this one request only. The answer counts only once the bridge has
        proved that it holds the key of its ``HTTP/`` principal.
        """
        node = self._settings.node
        try:
            context = self._context(node_binding(purpose, job_id, uid, node))
            token = context.step()
            body = json.dumps({"slurm_job_id": job_id, "uid": uid, "node": node}).encode()
            response, data = self._send(f"/v1/node/{purpose}", body, token or b"")
            problem = _problem(response, data)
            if response.status == http.client.NOT_FOUND and problem == "node.not_ours":
                raise NotOurs(problem)
            if 400 <= response.status < 500 and problem.startswith(_OVER):
                raise RunOver(problem)
            if response.status not in (http.client.OK, http.client.NO_CONTENT):
                raise NoAnswer(f"the bridge answered {response.status} {problem}", _wait(response))
            self._verify(context, response)
            if purpose == "tickets":
                _require_clock(response)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}") from error
        except GSSError as error:
            raise NoAnswer(f"Kerberos: {error}") from error
        return response, data

    def _context(self, binding: bytes) -> gssapi.SecurityContext:
        """Start a context, bound to the request, as ``host/<node>`` by the keytab; nothing of the caller's is used.

        Names are principals, not host-based services: those would be looked up in DNS first, which proves nothing.
        """
        name = gssapi.Name(f"host/{self._settings.node}", gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(
            name=name,
            usage="initiate",
            mechs=[SPNEGO, gssapi.MechType.kerberos],
            store={
                "client_keytab": self._settings.keytab,
                "keytab": self._settings.keytab,
                "ccache": f"MEMORY:ci-bridge-node-{os.getpid()}",
            },
        )
        return gssapi.SecurityContext(
            name=gssapi.Name(self._settings.bridge_principal, gssapi.NameType.kerberos_principal),
            creds=credentials,
            mech=SPNEGO,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            channel_bindings=ChannelBindings(application_data=binding),
            usage="initiate",
        )

    def _send(self, path: str, body: bytes, token: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.check_hostname = True
        tls.load_verify_locations(cafile=self._settings.ca_file)
        timeout = max(0.1, min(STEP_SECONDS, self._deadline - time.monotonic()))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=tls)
        try:
            headers = {
                "Authorization": f"Negotiate {base64.b64encode(token).decode()}",
                "Content-Type": "application/json",
                "User-Agent": "ci-bridge-node",
            }
            connection.request("POST", path, body=body, headers=headers)
            response = connection.getresponse()
            data = response.read(MAX_CACHE_BYTES + 1)
        finally:
            connection.close()
        return response, data

    @staticmethod
    def _verify(context: gssapi.SecurityContext, response: http.client.HTTPResponse) -> None:
        scheme, _, token = (response.getheader("WWW-Authenticate") or "").partition(" ")
        if scheme.lower() == "negotiate" and token and not context.complete:
            context.step(base64.b64decode(token))
        if not context.complete or gssapi.RequirementFlag.mutual_authentication not in context.actual_flags:
            raise Impostor("the bridge did not prove who it is")


def _wait(response: http.client.HTTPResponse) -> float:
    """Give the seconds of ``Retry-After`` where we are one of too many; an outage may be over at any moment."""
    after = response.getheader("Retry-After") or ""
    return float(after) if response.status == http.client.TOO_MANY_REQUESTS and after.isdecimal() else 0.0


def _require_clock(response: http.client.HTTPResponse) -> None:
    """Compare our clock with the answer's ``Date`` (RFC 9110 section 6.6.1), which is in whole seconds.

    libkrb5 makes up for a wrong clock towards the KDC (krb5.conf(5), kdc_timesync), so that the tickets come; no
    service would take them from here.
    """
    try:
        date = email.utils.parsedate_to_datetime(response.getheader("Date") or "")
    except (TypeError, ValueError):
        return
    ahead = round(time.time() - date.timestamp())
    if abs(ahead) > MAX_SKEW_SECONDS:
        raise WrongClock(f"this node's clock is {abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} the bridge's")


def _problem(response: http.client.HTTPResponse, data: bytes) -> str:
    """Give the code of an RFC 9457 problem, safe to log."""
    if response.status < http.client.BAD_REQUEST:
        return ""
    try:
        code = str(json.loads(data)["code"])
    except (ValueError, TypeError, KeyError):
        return "without an explanation"
    return "".join(letter for letter in code[:64] if letter.isalnum() or letter in "._")
