"""The bridge's settings: one TOML file, read once, frozen. The only place in the bridge that reads the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from bridge.errors import RequestRefused

DEFAULT_FILE: Final = Path("/etc/ci-bridge/bridge.toml")
CLIENT_FILE: Final = Path("/etc/ci-bridge/client.toml")

HostName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
HttpsUrl = Annotated[str, StringConstraints(pattern=r"^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$")]
ServerUrl = Annotated[str, StringConstraints(pattern=r"^https://[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$")]
HttpsOrigin = Annotated[str, StringConstraints(pattern=r"^https://[a-z0-9.-]+(:[0-9]{1,5})?$")]
DatabaseUrl = Annotated[str, StringConstraints(pattern=r"^(sqlite:////[^?#]+|postgresql\+psycopg://.+)$")]
Principal = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+/[a-z0-9.-]+$")]
KdcAddress = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$")]
AccountName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Realm = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9.-]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Issuer(_Section):
    """A GitLab whose id_tokens are believed."""

    url: HttpsUrl
    """Exactly as in the tokens' ``iss``."""
    audience: str = Field(min_length=1, max_length=255)
    """What the project's ``id_tokens:`` must name as ``aud``."""
    ca_file: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    """Certificates that GitLab's own must chain to; by default Debian's."""
    max_life_seconds: int = Field(default=7 * 24 * 3600, gt=0)
    """Longest accepted ``exp - iat``; GitLab sets it to the job's timeout."""
    jwks_file: Path | None = None
    """Take the signing keys from this file instead of GitLab's discovery."""
    oauth_client_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,255}$")
    """Of the OAuth application with which people show who they are in this GitLab; None is no self-service there."""
    oauth_client_secret_file: Path | None = None
    """Only the broker reads it; None for an application that GitLab calls not confidential."""
    job_token_evidence: bool = False
    """Whether policy is asked about jobs that show a job token of this GitLab, and no id_token."""


class PeopleIssuer(_Section):
    """An OpenID Connect provider whose tokens show who a person is, beside Kerberos."""

    url: HttpsUrl
    """Exactly as in the tokens' ``iss``."""
    audience: str = Field(min_length=1, max_length=255)
    """What the tokens must name as ``aud``: the bridge's client ID there."""
    ca_file: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    """Certificates that the provider's own must chain to; by default Debian's."""
    jwks_file: Path | None = None
    """Take the signing keys from this file instead of the provider's discovery."""
    principal_claim: str = Field(default="preferred_username", pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")
    """The claim that names the person, as ``alice`` or ``alice@REALM``."""
    realm: Realm
    """The Kerberos realm of its people; added where the claim has none, and no other is accepted."""
    required_claims: dict[str, StrictBool | StrictInt | StrictStr] = Field(default={}, max_length=16)
    """Each must be there with this value, or be a list that has it."""
    max_auth_age_seconds: int = Field(default=12 * 3600, ge=0)
    """Longest accepted time since the person signed in (``auth_time``); 0 asks for no ``auth_time``."""
    owns_accounts: bool = False
    """Whether its people are the owners of the accounts of their names: they say then what CI may do as them."""


class Database(_Section):
    """Where runs and the audit log live."""

    url: DatabaseUrl = "sqlite:////var/lib/ci-bridge/bridge.sqlite3"
    """An SQLAlchemy URL: ``sqlite:////path`` or ``postgresql+psycopg://...``."""


class Broker(_Section):
    """The process that holds the keytabs."""

    socket: Path = Path("/run/ci-bridge/broker.sock")
    principal: Principal
    realm: Realm
    keytab: Path = Path("/etc/ci-bridge/bridge.keytab")
    http_keytab: Path = Path("/etc/ci-bridge/http.keytab")
    http_service: Principal
    """``HTTP/<host>``, for nodes and people who authenticate by HTTP Negotiate."""
    private_directory: Path = Path("/run/ci-bridge-broker")
    """On a tmpfs, 0700: the replay cache of HTTP Negotiate. Credentials are in memory only."""
    seal_key: Path = Path("/var/lib/ci-bridge-broker/seal.key")
    web_user: str = "ci-bridge"
    """The only user, besides root, that the broker answers."""
    kdcs: tuple[KdcAddress, ...] = ()
    """The realm's KDCs, best first; the broker begins with the first that answers. Empty: as krb5.conf says."""
    uid_floor: int = Field(default=1000, ge=1)
    """The broker's own bounds, whatever the policies say: no tickets for an account with a lower uid,"""
    denied_users: tuple[AccountName, ...] = ()
    """of one of these names,"""
    denied_groups: tuple[AccountName, ...] = ("root", "wheel", "sudo", "adm", "disk", "shadow", "docker")
    """or in one of these groups."""
    node_requests_burst: int = Field(default=2000, ge=1)
    """How many requests a compute node may make at once: for each job that starts one, or some where it has to wait,"""
    node_requests_per_minute: int = Field(default=1200, ge=1)
    """and how many a minute on the long run."""
    node_claims_at_once: int = Field(default=24, ge=1)
    """How many of a node's jobs Slurm and the KDC are asked about at the same time."""
    self_test_account: AccountName | None = None
    """An account in whose name the self-test gets a ticket and drops it."""


class Web(_Section):
    """The process that executors and nodes talk to."""

    host: str = "127.0.0.1"
    port: int = Field(default=8443, ge=1, le=65535)
    socket: Path | None = None
    """Listen on this unix socket too, for a runner on the same machine."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    url: HttpsOrigin | None = None
    """Where people reach web, without a slash at the end; GitLab sends them back to ``<url>/link/callback``."""
    public_hosts: tuple[HostName, ...] = Field(min_length=1)
    """Names in the Host header that are answered; no wildcards."""
    known_hosts: Path = Path("/etc/ci-bridge/known_hosts")
    """Host keys of the login nodes, as in sshd(8) SSH_KNOWN_HOSTS."""
    job_wrapper: str = "/usr/lib/ci-bridge/ci-bridge-job"
    job_watch_seconds: float = Field(default=15, gt=0, le=3600)
    """How often GitLab is asked about each live run's job, as far as one question at a time allows it."""
    gitlab_silence_seconds: float = Field(default=0, ge=0)
    """A run whose GitLab has not answered for so long is ended as an outage; 0 is never."""
    executor_silence_seconds: float = Field(default=900, ge=0)
    """A run whose executor has not called for so long is ended, unless GitLab says that its job runs; 0 is never."""

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        return self


class Settings(_Section):
    """The whole file."""

    policies: Path = Path("/etc/ci-bridge/policies")
    issuers: tuple[Issuer, ...] = Field(min_length=1)
    people_issuers: tuple[PeopleIssuer, ...] = ()
    database: Database = Database()
    broker: Broker
    web: Web

    @model_validator(mode="after")
    def _address_for_sign_in(self) -> Self:
        if self.web.url is None and any(issuer.oauth_client_id for issuer in self.issuers):
            raise ValueError("an issuer with oauth_client_id needs web.url, where GitLab sends people back to")
        return self

    @model_validator(mode="after")
    def _people_and_jobs_apart(self) -> Self:
        """Who can start a job at a GitLab chooses much of its id_token, and must not be able to write a person's."""
        jobs = {issuer.url.rstrip("/").lower() for issuer in self.issuers}
        people = [issuer.url.rstrip("/").lower() for issuer in self.people_issuers]
        if not jobs.isdisjoint(people) or len(set(people)) != len(people):
            raise ValueError("each issuer of people_issuers stands there once, and is none of issuers")
        return self


class ClientSettings(_Section):
    """Where people's commands find the bridge, from any machine."""

    server: ServerUrl
    """Web's address, with the host name that its Kerberos service has."""
    ca_file: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    """Certificates that web's own must chain to; by default Debian's."""
    realm: Realm | None = None
    """The bridge's Kerberos realm; None is that of the person's ticket."""
    issuer: HttpsUrl | None = None
    """The GitLab that is meant where a command names none."""
    token_file: Path | None = None
    """A file with an API token, for programs; None is the person's own ticket."""


class _IssuersFile(BaseModel):
    """Of a settings file, only who is believed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuers: tuple[Issuer, ...] = Field(min_length=1)


S = TypeVar("S", bound=BaseModel)


def load(path: Path | None = None) -> Settings:
    """Read settings from ``path``, else from $CI_BRIDGE_CONFIG, else from DEFAULT_FILE.

    Raises RequestRefused ``settings.unreadable`` or ``settings.invalid``, naming file and setting.
    """
    source = path or Path(os.environ.get("CI_BRIDGE_CONFIG", DEFAULT_FILE))
    return parse(_document(source), source)


def _document(source: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestRefused(
            "settings.unreadable",
            f"The settings file {source} can't be read: {error}.",
            "Name the right file with --config or CI_BRIDGE_CONFIG.",
        ) from error


def parse(document: Mapping[str, Any], source: Path) -> Settings:
    """Check a parsed settings file; ``source`` is for the message. Raises RequestRefused ``settings.invalid``."""
    return _validated(Settings, document, source)


def _validated(kind: type[S], document: Mapping[str, Any], source: Path) -> S:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RequestRefused(
            "settings.invalid",
            f"In {source}, {where}: {first['msg']}.",
            "See docs/settings.md for what each setting takes.",
        ) from error


def load_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read the issuers of a whole settings file, or the one whose table is all that ``path`` holds.

    Raises RequestRefused ``settings.unreadable`` or ``settings.invalid``.
    """
    document = _document(path)
    return _validated(_IssuersFile, document if "issuers" in document else {"issuers": [document]}, path).issuers


def load_client(server: str | None = None, token_file: Path | None = None) -> ClientSettings:
    """Return how to reach the bridge: at ``server``, else $CI_BRIDGE_SERVER, else as the client file says.

    ``token_file``, else $CI_BRIDGE_TOKEN_FILE, else the file's, has an API token to be used instead of a ticket.
    The file is $CI_BRIDGE_CLIENT, else CLIENT_FILE where there is one; the rest of it counts in any case. Raises
    RequestRefused ``settings.unreadable``, ``settings.invalid``, ``settings.no_server``.
    """
    named = os.environ.get("CI_BRIDGE_CLIENT")
    document = _document(Path(named)) if named else _document(CLIENT_FILE) if _is_there(CLIENT_FILE) else {}
    address = server or os.environ.get("CI_BRIDGE_SERVER")
    if address:
        address = address.removesuffix("/")
        _validated(ClientSettings, {"server": address}, Path("--server or CI_BRIDGE_SERVER"))
        document["server"] = address
    if token := token_file or os.environ.get("CI_BRIDGE_TOKEN_FILE"):
        document["token_file"] = str(token)
    if "server" not in document:
        raise RequestRefused(
            "settings.no_server",
            "Nothing says where the bridge is.",
            f"Give its address with --server or CI_BRIDGE_SERVER, or write {CLIENT_FILE}; see docs/settings.md.",
        )
    return _validated(ClientSettings, document, Path(named or CLIENT_FILE))


def is_bridge_host(path: Path | None = None) -> bool:
    """Whether a command is to work on the bridge of this machine: ``load(path)`` has something to read."""
    return path is not None or bool(os.environ.get("CI_BRIDGE_CONFIG")) or _is_there(DEFAULT_FILE)


def _is_there(path: Path) -> bool:
    """Whether the caller can see the file; one in a directory that is not theirs to look into is none."""
    try:
        return path.exists()
    except OSError:
        return False


def read_krb5_conf_first(first: Path) -> None:
    """Have libkrb5 in this process read ``first`` before its usual files; call it before there is another thread.

    KRB5_CONFIG is a list, and in what is not a list of values the first file wins (krb5.conf(5)).
    """
    os.environ["KRB5_CONFIG"] = f"{first}:{os.environ.get('KRB5_CONFIG', '/etc/krb5.conf')}"


def inherited_sockets() -> int:
    """How many listening sockets the service manager passed us, from file descriptor 3 on (sd_listen_fds(3))."""
    if os.environ.get("LISTEN_PID") not in (None, str(os.getpid())):
        return 0
    return int(os.environ.get("LISTEN_FDS", "0"))
