"""Our own certificate authority: made once; its successors are trusted by all who trust it.

Its folder holds `ca.pem` (what pilots and clients trust, the newest first), `ca.key`, and the
server's own `server.pem` (with the certificates between it and an older authority) and
`server.key`. Only the folder's owner can read the keys. The folder changes in such an order that a
crash at any moment leaves one that works.

A year before an authority expires, a new one takes its place. The old one signs the key of the new
one, and the server shows that signature too. So whoever trusts the old authority trusts the server
until the old one expires, and start files from then on name both.
"""

import ipaddress
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from covey.core.errors import CoveyError
from covey.replacing import replace

CA_DAYS = 3650
CA_RENEW_DAYS = 365  # left
SERVER_DAYS = 90
SERVER_RENEW_DAYS = 30  # left
BACKDATED_DAYS = 3  # some hosts' clocks are wrong by a day or more

Key = ec.EllipticCurvePrivateKey
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Issued(NamedTuple):
    """The server's certificate with those above it, and its key, as PEM."""

    chain: bytes
    key: bytes


class Authority:
    """Raises CoveyError if its folder is damaged, OSError if it cannot be written."""

    def __init__(self, folder: Path, clock: Clock = utc_now) -> None:
        self._folder = folder
        self._next = folder.with_name(folder.name + "-next")
        self._clock = clock
        self._settle()
        if not folder.exists():
            self._found()
        self._trusted = _certificates(folder / "ca.pem")

    @property
    def trusted(self) -> str:
        """The authorities that pilots and clients trust, as PEM."""
        return _pem(self._trusted).decode()

    def issue(self, names: Iterable[str]) -> Issued:
        """A certificate for these names that will not expire soon: the present one, or a new
        one."""
        if self._left(self._trusted[0]) < timedelta(days=CA_RENEW_DAYS):
            self._succeed()
        wanted = list(dict.fromkeys(names))
        issued = self._issued()
        if issued is not None and self._serves(issued, wanted):
            return issued
        return self._issue(wanted)

    # -- the server's own certificate --------------------------------------------------------

    def _issued(self) -> Issued | None:
        """The present certificate and key; None if they are missing, or do not belong together
        after a crash."""
        try:
            chain = (self._folder / "server.pem").read_bytes()
            key = (self._folder / "server.key").read_bytes()
            public = _key(key).public_key()
            fits = x509.load_pem_x509_certificate(chain).public_key() == public
        except (OSError, ValueError, TypeError):
            return None
        return Issued(chain, key) if fits else None

    def _serves(self, issued: Issued, names: list[str]) -> bool:
        leaf = x509.load_pem_x509_certificate(issued.chain)
        if leaf.issuer != self._trusted[0].subject:
            return False
        if self._left(leaf) < timedelta(days=SERVER_RENEW_DAYS):
            return False
        named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return all(name in named for name in map(_general, names))

    def _issue(self, names: list[str]) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        above = self._trusted[0]
        end = min(self._clock() + timedelta(days=SERVER_DAYS), above.not_valid_after_utc)
        leaf = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "covey server")]), end)
            .issuer_name(above.subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        )
        ca_key = self._ca_key()
        signed = _signed(_with_ids(leaf, key, ca_key), ca_key)
        issued = Issued(_pem([signed, *self._crossed()]), _key_pem(key))
        replace(self._folder / "server.key", issued.key)
        replace(self._folder / "server.pem", issued.chain)
        return issued

    def _crossed(self) -> list[x509.Certificate]:
        """The signature of the authority before this one, until that one expires."""
        path = self._folder / "cross.pem"
        return _certificates(path) if path.exists() else []

    # -- the authority itself ----------------------------------------------------------------

    def _found(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._prepare(key, [self._root(key)], [])
        self._settle()

    def _succeed(self) -> None:
        """Make a new authority; the present one signs its key, unless it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        root, before = self._root(key), self._trusted[0]
        crossed = []
        if self._left(before) > timedelta(0):
            ca_key = self._ca_key()
            builder = self._authority(root.subject, key, before.not_valid_after_utc)
            crossed = [_signed(_with_ids(builder.issuer_name(before.subject), key, ca_key), ca_key)]
        self._prepare(key, [root, before], crossed)
        self._settle()
        self._trusted = [root, before]

    def _prepare(
        self, key: Key, trusted: list[x509.Certificate], crossed: list[x509.Certificate]
    ) -> None:
        """Write the next folder; the last step gives it its name."""
        made = Path(tempfile.mkdtemp(dir=self._folder.parent, prefix=f".{self._folder.name}-"))
        try:
            replace(made / "ca.key", _key_pem(key))
            replace(made / "ca.pem", _pem(trusted))
            if crossed:
                replace(made / "cross.pem", _pem(crossed))
            os.rename(made, self._next)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            raise

    def _settle(self) -> None:
        """Put the next folder in its place; after a crash, the next start does it."""
        if not self._next.exists():
            return
        old = self._folder.with_name(self._folder.name + "-old")
        if self._folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(self._folder, old)
        os.rename(self._next, self._folder)
        shutil.rmtree(old, ignore_errors=True)

    def _root(self, key: Key) -> x509.Certificate:
        unique = secrets.token_hex(4)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"covey authority {unique}")])
        builder = self._authority(name, key, self._clock() + timedelta(days=CA_DAYS))
        return _signed(_with_ids(builder.issuer_name(name), key, key), key)

    def _authority(self, name: x509.Name, key: Key, end: datetime) -> x509.CertificateBuilder:
        return (
            self._builder(name, end)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )

    def _builder(self, name: x509.Name, end: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._clock() - timedelta(days=BACKDATED_DAYS))
            .not_valid_after(end)
        )

    def _ca_key(self) -> Key:
        path = self._folder / "ca.key"
        try:
            return _key(path.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(path, error) from error

    def _left(self, certificate: x509.Certificate) -> timedelta:
        return certificate.not_valid_after_utc - self._clock()


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _with_ids(builder: x509.CertificateBuilder, own: Key, above: Key) -> x509.CertificateBuilder:
    """With the ids of both keys, which strict TLS libraries demand."""
    own_id = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    above_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.public_key())
    return builder.add_extension(own_id, critical=False).add_extension(above_id, critical=False)


def _signed(builder: x509.CertificateBuilder, key: Key) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CoveyError:
    return CoveyError(
        f"{path} cannot be used: {error}. Put it back from a backup; or remove {path.parent}, "
        "start the server, and give the new ca.pem to every client and pilot."
    )


def _key(pem: bytes) -> Key:
    key = load_pem_private_key(pem, None)
    if not isinstance(key, Key):
        raise TypeError("not a key that covey made")
    return key


def _pem(certificates: list[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
