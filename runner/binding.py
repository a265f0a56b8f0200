"""What a Kerberos token speaks for: one request and no other, whoever carries it to the broker.

Each is the application data of channel bindings (RFC 2744, section 3.11): the client and the broker make it, each for
itself, from what is asked, so that nobody between them can spend the token on something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def node_binding(purpose: str, slurm_job_id: int, uid: int, node: str) -> bytes:
    """Return the data of a node's request about one Slurm job; ``purpose`` is ``tickets`` or ``released``."""
    words = json.dumps(["ci-bridge-node/1", purpose, slurm_job_id, uid, node], separators=(",", ":"))
    return hashlib.sha256(words.encode()).digest()


def request_binding(method: str, path: str, version: int | None, body: Mapping[str, object]) -> bytes:
    """Return the data of a person's request to the bridge's API.

    version: the number in ``If-Match``, or None. body: the members of the JSON that is sent; one that is null says the
    same as one that is not there. What counts is the SHA-256 of their one canonical form, so that files may be long.
    """
    members = {name: value for name, value in body.items() if value is not None}
    content = hashlib.sha256(_canonical(members)).hexdigest()
    return hashlib.sha256(_canonical(["ci-bridge-request/1", method, path, version, content])).digest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
