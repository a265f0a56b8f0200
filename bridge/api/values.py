"""What people may write into a request: the forms of texts, numbers and ids that API and pages share."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_NUMBER: Final = 2**53 - 1
"""The largest that every JSON reader takes for what it is (RFC 8259 section 6)."""


def _printable(text: str) -> str:
    """T45: no control characters, and none that turn the direction of writing."""
    if not text.isprintable():
        raise ValueError("must be printable characters on one line")
    return text


Text = Annotated[str, Field(max_length=1000), AfterValidator(_printable)]
Url = Annotated[str, Field(pattern=r"^https://[\x21-\x7e]{1,1016}$")]
AccountName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Number = Annotated[int, Field(gt=0, le=MAX_NUMBER)]
Reference = Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}$")]


class Strict(BaseModel):
    """A body whose members are all known, and each of its own type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
