"""The one exception that the stand-in turns into a GitLab-shaped HTTP error."""

from collections.abc import Mapping


class ApiError(Exception):
    """A request that GitLab would refuse; `message` is sent as `{"message": ...}` as GitLab's REST API does.

    Args:
        status: HTTP status code.
        message: a sentence, or a mapping of attribute to complaints for validation errors.
        headers: extra response headers, for example `Range` on 416.
    """

    def __init__(
        self,
        status: int,
        message: str | Mapping[str, list[str]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(str(message))
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def not_found(what: str) -> ApiError:
    """GitLab's 404 for a missing or invisible record, such as `404 Project Not Found`."""
    return ApiError(404, f"404 {what} Not Found")


def unauthorized() -> ApiError:
    """GitLab's 401 for an unknown, ended or missing token."""
    return ApiError(401, "401 Unauthorized")


def forbidden(reason: str = "", headers: Mapping[str, str] | None = None) -> ApiError:
    """GitLab's 403, with its reason after a dash."""
    return ApiError(403, f"403 Forbidden  - {reason}" if reason else "403 Forbidden", headers)
