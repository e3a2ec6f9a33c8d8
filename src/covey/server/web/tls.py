"""TLS for the server. Certificates may change while it runs; open connections do not notice.

One context serves all new connections. A new certificate is first tried in another context: a
half-written pair of files changes nothing, and is tried again later. Reading certificates may take
long, and happens in a thread (`look`); only the event loop changes the context (`use`).
"""

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from covey.core.errors import BadConfig

CHECK_SECONDS = 10.0
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # what TLS 1.2 may use; all of TLS 1.3 is good


class Pair(NamedTuple):
    """A certificate with those above it, and its key, as PEM; `origin`: where it is from."""

    chain: bytes
    key: bytes
    origin: str


class Source(Protocol):
    @property
    def ca(self) -> str:
        """The authority, as PEM, that clients and pilots must be told to trust; empty: they trust
        it already."""
        ...

    def look(self) -> Pair:
        """The pair to use now. May take long. Raises OSError or CoveyError."""
        ...


class Tls:
    """Raises what its source raises."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.context = new_context()
        self._used: Pair | None = None
        self.expires = 0.0  # when the certificate in use expires, in seconds since 1970
        pair = self.look()
        if pair is not None:
            self.use(pair)

    @property
    def ca(self) -> str:
        return self._source.ca

    def look(self) -> Pair | None:
        """A new pair that works; None: nothing has changed."""
        pair = self._source.look()
        if pair == self._used:
            return None
        _load(new_context(), pair)
        return pair

    def use(self, pair: Pair) -> None:
        _load(self.context, pair)
        self._used = pair
        self.expires = _expiry(pair.chain)


class OwnCertificate:
    """Our own authority in a folder, and a certificate for these names."""

    def __init__(self, folder: Path, names: Callable[[], Sequence[str]]) -> None:
        from covey.server.web.certificate_authority import (
            Authority,  # slow to import, and needed only here
        )

        self._authority = Authority(folder)
        self._names = names

    @property
    def ca(self) -> str:
        return self._authority.trusted

    def look(self) -> Pair:
        issued = self._authority.issue(self._names())
        return Pair(issued.chain, issued.key, "our own authority")


class GivenCertificate:
    """Files that the administrator keeps up to date."""

    ca = ""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key

    def look(self) -> Pair:
        chain, key = self._certificate.read_bytes(), self._key.read_bytes()
        return Pair(chain, key, f"certificate {self._certificate} and key {self._key}")


def new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1  # enough to resume a session; each costs a write
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """Load from memory, so that exactly the bytes that were tried are used."""
    handle = os.memfd_create("certificate")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=_no_password)
    except (OSError, ValueError) as error:
        raise BadConfig(f"{pair.origin} cannot be used: {_meaning(error)}") from error
    finally:
        os.close(handle)


def _expiry(chain: bytes) -> float:
    """When the first certificate of the chain expires."""
    from cryptography import x509  # slow to import, and only servers with TLS need it

    certificates = x509.load_pem_x509_certificates(chain)
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)


def _meaning(error: Exception) -> str:
    """OpenSSL's error in plain words."""
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    if isinstance(error, ssl.SSLError):
        return f"they must be a certificate and its key, both in PEM ({reason or error})"
    return str(error)


def _no_password() -> str:
    raise ValueError("the key is protected by a password; use a key without a password")
