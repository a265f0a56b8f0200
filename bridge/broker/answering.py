"""What each answer to somebody says besides its result: how they know us, and how they go on."""

from __future__ import annotations

import base64
from typing import Any

from bridge.people.caller import Caller


def answered(caller: Caller) -> dict[str, Any]:
    """Return members for the answer's header.

    ``reply`` is our side of Negotiate in base64, empty for other credentials; ``session`` is the session's next token,
    where there is a new one.
    """
    header = {"reply": base64.b64encode(caller.reply).decode()}
    return header if caller.renewed is None else header | {"session": caller.renewed}
