"""Who is signed in with a browser: sessions by the random value of a cookie."""

import secrets
import threading
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.responses import Response

from realm.gitlab.model import User
from realm.gitlab.store import Store

COOKIE = "_gitlab_session"


@dataclass(frozen=True)
class Session:
    """One browser; `authenticity_token` must come back with every form, `return_to` is where sign-in leads."""

    key: str = field(repr=False)
    authenticity_token: str = field(repr=False)
    user_id: int | None = None
    return_to: str = ""

    def owns(self, authenticity_token: str) -> bool:
        """Whether a form came from this session's own page."""
        return secrets.compare_digest(self.authenticity_token.encode(), authenticity_token.encode())


class Sessions:
    """All sessions of the instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def of(self, request: Request) -> Session | None:
        """The session of a request's cookie, if it is known."""
        with self._lock:
            return self._sessions.get(request.cookies.get(COOKIE, ""))

    def begin(self, user_id: int | None = None, return_to: str = "") -> Session:
        """A session with a key of its own, signed in or not."""
        session = Session(secrets.token_hex(16), secrets.token_urlsafe(32), user_id, return_to)
        with self._lock:
            self._sessions[session.key] = session
        return session

    def sign_in(self, before: Session, user_id: int) -> Session:
        """The session of a person who has just shown who they are; the key changes, against session fixation."""
        with self._lock:
            self._sessions.pop(before.key, None)
        return self.begin(user_id)

    def returning(self, session: Session, return_to: str) -> Session:
        """The same session, with another place to go to after sign-in."""
        with self._lock:
            self._sessions[session.key] = replace(session, return_to=return_to)
            return self._sessions[session.key]

    def end(self, session: Session) -> None:
        """Sign out."""
        with self._lock:
            self._sessions.pop(session.key, None)


def signed_in(store: Store, session: Session | None) -> User | None:
    """The active person of a session; blocked ones count as signed out."""
    user = store.users.get(session.user_id) if session is not None and session.user_id is not None else None
    return user if user is not None and user.state == "active" else None


def keep(response: Response, session: Session) -> Response:
    """The response with the session's cookie on it."""
    response.set_cookie(COOKIE, session.key, path="/", secure=True, httponly=True, samesite="lax")
    return response
