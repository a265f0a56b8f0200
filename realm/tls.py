"""A certificate authority that lives as long as its realm, and the server certificates of gitlab and bridge."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from realm.cluster import Realm

CA_PATH = "/etc/realm/ca.pem"
CERTIFICATE_PATH = "/etc/realm/tls/cert.pem"
KEY_PATH = "/etc/realm/tls/key.pem"
_SERVERS = {"gitlab": "root", "bridge": "ci-bridge"}
_LIFE = dt.timedelta(days=2)
_SKEW = dt.timedelta(minutes=5)


def issue(realm: Realm) -> None:
    """Make the CA, put its certificate on every host, and give gitlab and bridge a key only their service can read."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("Pocket realm CA", ca_key.public_key(), "Pocket realm CA", ca_key, names=())
    for host in realm.hosts.values():
        host.write(CA_PATH, _pem(ca))
        owner = _SERVERS.get(host.name)
        if owner is None:
            continue
        key = ec.generate_private_key(ec.SECP256R1())
        names = (host.fqdn, host.name)
        host.write(CERTIFICATE_PATH, _pem(_certificate(host.fqdn, key.public_key(), "Pocket realm CA", ca_key, names)))
        host.write(KEY_PATH, _key_pem(key), mode=0o600, owner=owner)


def _certificate(
    subject: str,
    public: ec.EllipticCurvePublicKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    names: tuple[str, ...],
) -> x509.Certificate:
    """A certificate for a server called `names`, or for the CA itself when there are none (RFC 5280)."""
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None if names else 0), critical=True)
        .add_extension(_usage(is_ca=not names), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)
