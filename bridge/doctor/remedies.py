"""What to do about a finding at the KDC, as commands of the KDC that the site has; data only.

Sources: kadmin(1), ldapmodify(1), ktutil(1); `ipa help service`, `ipa help delegation`; Microsoft's ActiveDirectory
PowerShell module and ktpass; `samba-tool delegation` and `samba-tool domain exportkeytab`. deploy/ has them as scripts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class KdcKind(StrEnum):
    """Which KDC the realm has."""

    MIT = "mit"
    FREEIPA = "freeipa"
    AD = "ad"
    SAMBA = "samba"


class Problem(StrEnum):
    """A kind of finding that is cured at the KDC."""

    KEYTAB = "keytab"
    WEAK_KEY = "weak key"
    CLOSED = "closed"
    NOT_FORWARDABLE = "not forwardable"
    NO_TRANSITION = "no transition"
    RENEWABLE = "renewable"
    LIFE = "life"
    TARGET_MISSING = "target missing"
    TARGET_TOO_MANY = "target too many"
    TARGET_UNKNOWN = "target unknown"
    TARGET_PREAUTH = "target preauth"
    EXPOSED = "exposed"


_LISTS: Final = frozenset({Problem.TARGET_MISSING, Problem.TARGET_TOO_MANY})

_SETUP: Final = "deploy/kdc/setup-delegation --bridge {host} --apply clusters.toml, which makes the list what is needed"
"""Where the entry's name is not known, as only a reader of the directory knows it."""

_TABLE: Final[dict[KdcKind, dict[Problem, str]]] = {
    KdcKind.MIT: {
        Problem.KEYTAB: "kadmin.local -q 'ktadd -norandkey -k bridge.keytab {bridge}', then put the file in "
        "the place of {keytab}",
        Problem.WEAK_KEY: "kadmin.local -q 'cpw -randkey -e aes256-cts:normal,aes128-cts:normal {name}', "
        "then write its keytab anew with ktadd -norandkey",
        Problem.CLOSED: "kadmin.local -q 'modprinc +allow_tix -expire never {name}'",
        Problem.NOT_FORWARDABLE: "kadmin.local -q 'modprinc +allow_forwardable {bridge}'",
        Problem.NO_TRANSITION: "kadmin.local -q 'modprinc +ok_to_auth_as_delegate {bridge}'",
        Problem.RENEWABLE: "kadmin.local -q 'modprinc -allow_renewable {bridge}'",
        Problem.LIFE: "kadmin.local -q 'modprinc -maxlife \"{minutes} minutes\" {bridge}'",
        Problem.TARGET_MISSING: "printf 'dn: %s\\nchangetype: modify\\nadd: krbAllowedToDelegateTo\\n"
        "krbAllowedToDelegateTo: %s\\n' '{dn}' '{name}' | ldapmodify -Q -Y EXTERNAL -H ldapi:///",
        Problem.TARGET_TOO_MANY: "printf 'dn: %s\\nchangetype: modify\\ndelete: krbAllowedToDelegateTo\\n"
        "krbAllowedToDelegateTo: %s\\n' '{dn}' '{name}' | ldapmodify -Q -Y EXTERNAL -H ldapi:///",
        Problem.TARGET_UNKNOWN: "kadmin.local -q 'addprinc -randkey -allow_forwardable {name}', or correct "
        "clusters.toml",
        Problem.TARGET_PREAUTH: "kadmin.local -q 'modprinc +requires_preauth {bridge}'",
        Problem.EXPOSED: "kadmin.local -q 'modprinc -allow_forwardable {name}'",
    },
    KdcKind.FREEIPA: {
        Problem.KEYTAB: "ipa-getkeytab -r -p {bridge} -k bridge.keytab, then put the file in the place of {keytab}",
        Problem.WEAK_KEY: "ipa-getkeytab -e aes256-cts,aes128-cts -p {name} -k new.keytab",
        Problem.CLOSED: "ipa user-enable {name}, or kadmin.local -q 'modprinc +allow_tix {name}' on the IPA server",
        Problem.NOT_FORWARDABLE: "kadmin.local -q 'modprinc +allow_forwardable {bridge}' on the IPA server",
        Problem.NO_TRANSITION: "ipa service-mod {bridge} --ok-to-auth-as-delegate=true",
        Problem.RENEWABLE: "kadmin.local -q 'modprinc -allow_renewable {bridge}' on the IPA server",
        Problem.LIFE: "kadmin.local -q 'modprinc -maxlife \"{minutes} minutes\" {bridge}' on the IPA server",
        Problem.TARGET_MISSING: "ipa servicedelegationtarget-add-member ci-bridge-targets --principals={name}",
        Problem.TARGET_TOO_MANY: "ipa servicedelegationtarget-remove-member ci-bridge-targets "
        "--principals={name}; look at ipa servicedelegationrule-find for other rules of the bridge",
        Problem.TARGET_UNKNOWN: "ipa service-add {name}, or correct clusters.toml",
        Problem.TARGET_PREAUTH: "kadmin.local -q 'modprinc +requires_preauth {bridge}' on the IPA server",
        Problem.EXPOSED: "kadmin.local -q 'modprinc -allow_forwardable {name}' on the IPA server",
    },
    KdcKind.AD: {
        Problem.KEYTAB: "ktpass -princ {bridge} -mapuser {account} -crypto AES256-SHA1 -ptype "
        "KRB5_NT_PRINCIPAL +rndPass -out bridge.keytab, then put the file in the place of {keytab}",
        Problem.WEAK_KEY: "Set-ADUser {account} -KerberosEncryptionType AES128,AES256 for the account of "
        "{name}, and set a new password on it",
        Problem.CLOSED: "Enable-ADAccount or Unlock-ADAccount for {name}",
        Problem.NOT_FORWARDABLE: "Set-ADAccountControl {account} -AccountNotDelegated $false, and take it "
        "out of Protected Users",
        Problem.NO_TRANSITION: "Set-ADAccountControl {account} -TrustedToAuthForDelegation $true",
        Problem.RENEWABLE: "nothing: AD has no such flag for one account; the bridge asks for tickets that "
        "are not renewable",
        Problem.LIFE: "give {account} an authentication policy (New-ADAuthenticationPolicy -UserTGTLifetimeMins "
        "{minutes})",
        Problem.TARGET_MISSING: "Set-ADUser {account} -Add @{{'msDS-AllowedToDelegateTo'='{spn}'}}",
        Problem.TARGET_TOO_MANY: "Set-ADUser {account} -Remove @{{'msDS-AllowedToDelegateTo'='{spn}'}}; "
        "where it is not there, look at msDS-AllowedToActOnBehalfOfOtherIdentity of the service",
        Problem.TARGET_UNKNOWN: "setspn -S {spn} ACCOUNT, or correct clusters.toml",
        Problem.TARGET_PREAUTH: "Set-ADAccountControl {account} -DoesNotRequirePreAuth $false",
        Problem.EXPOSED: "Set-ADAccountControl ACCOUNT -AccountNotDelegated $true for the account of "
        "{name}, or put it into Protected Users",
    },
    KdcKind.SAMBA: {
        Problem.KEYTAB: "samba-tool domain exportkeytab bridge.keytab --principal={bridge}, then put the "
        "file in the place of {keytab}",
        Problem.WEAK_KEY: "'nt hash store = never' and 'kdc default domain supported enctypes = aes128-cts "
        "aes256-cts' in smb.conf, then a new password and a new keytab for the account of {name}",
        Problem.CLOSED: "samba-tool user enable {name}, or samba-tool user unlock {name}",
        Problem.NOT_FORWARDABLE: "samba-tool user sensitive {account} off",
        Problem.NO_TRANSITION: "samba-tool delegation for-any-protocol {account} on",
        Problem.RENEWABLE: "nothing: Samba has no such flag for one account; the bridge asks for tickets that are not "
        "renewable",
        Problem.LIFE: "'kdc:user ticket lifetime' in smb.conf, which holds for the whole domain",
        Problem.TARGET_MISSING: "samba-tool delegation add-service {account} {spn}",
        Problem.TARGET_TOO_MANY: "samba-tool delegation del-service {account} {spn}",
        Problem.TARGET_UNKNOWN: "samba-tool spn add {spn} ACCOUNT, or correct clusters.toml",
        Problem.TARGET_PREAUTH: "take DONT_REQ_PREAUTH out of userAccountControl: samba-tool user edit {account}",
        Problem.EXPOSED: "samba-tool user sensitive ACCOUNT on, for the account of {name}",
    },
}


class Remedies:
    """Remedies for one bridge principal at one kind of KDC."""

    def __init__(self, kind: KdcKind, bridge: str, keytab: str) -> None:
        self.kind = kind
        self._names = {"bridge": bridge, "keytab": keytab, "account": _account(bridge), "dn": ""}

    def knowing(self, dn: str) -> Remedies:
        """The same, with the directory entry of the bridge's principal."""
        better = Remedies(self.kind, self._names["bridge"], self._names["keytab"])
        better._names["dn"] = dn
        return better

    def to(self, problem: Problem, name: str = "", minutes: int = 0) -> str:
        """One sentence with the command; ``name`` is the principal that it is about, with realm."""
        spn = name.partition("@")[0]
        if problem in _LISTS and self.kind is KdcKind.MIT and not self._names["dn"]:
            return f"At the KDC: {_SETUP.format(host=_host(self._names['bridge']))}."
        text = _TABLE[self.kind][problem].format(**self._names, name=name, spn=spn, minutes=minutes)
        return f"At the KDC: {text}."


def _host(bridge: str) -> str:
    return bridge.partition("/")[2].partition("@")[0]


def _account(bridge: str) -> str:
    """The account that deploy/ad makes for ``ci-bridge/host@REALM``."""
    return bridge.partition("/")[0]
