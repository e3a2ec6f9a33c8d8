"""Our own authority and given certificates, with real handshakes: over years, in no time."""

import os
import shutil
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from covey.core.errors import BadConfig, CoveyError
from covey.server.web.certificate_authority import CA_DAYS, SERVER_DAYS, Authority, Issued
from covey.server.web.tls import GivenCertificate, OwnCertificate, Pair, Tls, new_context

NAMES = ["covey.example.org", "127.0.0.1", "::1"]


class Calendar:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def pass_days(self, days: float) -> None:
        self.now += timedelta(days=days)


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


def leaf_of(issued: Issued | Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.chain)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A handshake in memory. Raises SSLError if one of the two will not have the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(10):
        done = 0
        for side in (ours, theirs):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
        if done == 2:
            return ours
    raise AssertionError("no end of the handshake")


def serving(issued: Issued | Pair) -> ssl.SSLContext:
    class Here:
        ca = ""

        def look(self) -> Pair:
            return Pair(issued.chain, issued.key, "a test")

    return Tls(Here()).context


def trusting(pem: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pem)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


# -- our own authority ---------------------------------------------------------------------


def test_a_pilot_that_pins_the_authority_trusts_the_server(tmp_path: Path) -> None:
    own = Authority(tmp_path / "tls")
    context = serving(own.issue(NAMES))
    for name in NAMES:
        shook = shake(context, trusting(own.trusted), name)
        assert shook.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(context, trusting(own.trusted), "other.example.org")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    own, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(serving(own.issue(NAMES)), trusting(other.trusted), NAMES[0])


def test_keys_are_for_their_owner(tmp_path: Path) -> None:
    Authority(tmp_path / "tls").issue(NAMES)
    assert (tmp_path / "tls").stat().st_mode & 0o77 == 0
    for name in ("ca.key", "server.key"):
        assert (tmp_path / "tls" / name).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tls"]


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    first = Authority(tmp_path / "tls")
    issued = first.issue(NAMES)
    again = Authority(tmp_path / "tls")
    assert (again.trusted, again.issue(NAMES)) == (first.trusted, issued)
    assert again.issue(NAMES[:1]) == issued  # fewer names are no reason for a new one


def test_new_names_get_a_new_certificate(tmp_path: Path) -> None:
    own = Authority(tmp_path / "tls")
    own.issue(NAMES)
    context = serving(own.issue([*NAMES, "new.example.org"]))
    assert shake(context, trusting(own.trusted), "new.example.org")


def test_the_server_certificate_is_renewed_in_time(tmp_path: Path, calendar: Calendar) -> None:
    own = Authority(tmp_path / "tls", calendar)
    first = own.issue(NAMES)
    calendar.pass_days(SERVER_DAYS - 31)
    assert own.issue(NAMES) == first
    calendar.pass_days(2)
    renewed = own.issue(NAMES)
    assert renewed != first
    assert leaf_of(renewed).not_valid_after_utc == calendar.now + timedelta(days=SERVER_DAYS)


def test_hosts_whose_clock_is_a_day_behind_trust_a_new_one(
    tmp_path: Path, calendar: Calendar
) -> None:
    own = Authority(tmp_path / "tls", calendar)
    yesterday = calendar.now - timedelta(days=2)
    assert leaf_of(own.issue(NAMES)).not_valid_before_utc < yesterday
    assert x509.load_pem_x509_certificate(own.trusted.encode()).not_valid_before_utc < yesterday


def test_a_crash_between_key_and_certificate_is_healed(tmp_path: Path) -> None:
    own = Authority(tmp_path / "tls")
    before = own.issue(NAMES)
    own.issue([*NAMES, "more"])
    (tmp_path / "tls" / "server.pem").write_bytes(before.chain)  # another key's
    after = Authority(tmp_path / "tls").issue(NAMES)
    assert shake(serving(after), trusting(own.trusted), NAMES[0])


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_damaged_authority_is_not_replaced_in_silence(
    tmp_path: Path, name: str, damage: str
) -> None:
    Authority(tmp_path / "tls")
    path = tmp_path / "tls" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CoveyError, match="backup"):
        Authority(tmp_path / "tls").issue(NAMES)


# -- its successor -------------------------------------------------------------------------


def test_a_new_authority_strands_nobody(tmp_path: Path, calendar: Calendar) -> None:
    """Nine years on: those who know the old one, the new one, or both, all trust the server.
    (Nine years on is today: OpenSSL knows no other day.)"""
    calendar.pass_days(-(CA_DAYS - 364))
    own = Authority(tmp_path / "tls", calendar)
    old = own.trusted
    calendar.pass_days(CA_DAYS - 366)
    own.issue(NAMES)
    assert own.trusted == old
    calendar.pass_days(2)
    context = serving(own.issue(NAMES))
    both = own.trusted
    assert old in both
    assert len(x509.load_pem_x509_certificates(both.encode())) == 2
    new = both.replace(old, "")
    for trusted in (old, new, both):
        assert shake(context, trusting(trusted), NAMES[0]), trusted
    assert Authority(tmp_path / "tls", calendar).trusted == both


def test_an_authority_that_has_ended_is_followed_by_another(
    tmp_path: Path, calendar: Calendar
) -> None:
    """The server had been off for years: whoever trusted it needs the new file."""
    calendar.pass_days(-(CA_DAYS + 10))
    own = Authority(tmp_path / "tls", calendar)
    old = own.trusted
    calendar.pass_days(CA_DAYS + 10)
    context = serving(own.issue(NAMES))
    assert shake(context, trusting(own.trusted), NAMES[0])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context, trusting(old), NAMES[0])


def test_a_crash_at_any_step_of_the_succession(
    tmp_path: Path, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the n-th rename, the next start finds the old one or the new one."""
    calendar.pass_days(-(CA_DAYS - 300))
    own = Authority(tmp_path / "tls", calendar)
    own.issue(NAMES)
    old = own.trusted
    calendar.pass_days(CA_DAYS - 300)
    crashed = 0
    for step in range(20):
        here = tmp_path / f"step{step}"
        shutil.copytree(tmp_path / "tls", here / "tls")
        renew = partial(_renew, here, calendar)
        if not _dies_at(step, renew, monkeypatch):
            break
        crashed += 1
        after = Authority(here / "tls", calendar)
        context = serving(after.issue(NAMES))
        assert shake(context, trusting(old), NAMES[0])
        assert sorted(path.name for path in here.iterdir() if path.name[0] != ".") == ["tls"]
    assert crashed >= 5


def _renew(folder: Path, calendar: Calendar) -> None:
    Authority(folder / "tls", calendar).issue(NAMES)


class _Killed(BaseException):
    pass


def _dies_at(step: int, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the call came as far as its n-th rename or replacement."""
    left = [step]
    real = {"rename": os.rename, "replace": os.replace}

    def counted(name: str) -> Callable[..., None]:
        def rename(*paths: Any) -> None:
            if not left[0]:
                raise _Killed
            left[0] -= 1
            real[name](*paths)

        return rename

    with monkeypatch.context() as patch:
        for name in real:
            patch.setattr(os, name, counted(name))
        try:
            call()
        except _Killed:
            return True
    return False


# -- given certificates --------------------------------------------------------------------


def write(folder: Path, issued: Issued) -> tuple[Path, Path]:
    certificate, key = folder / "given.pem", folder / "given.key"
    certificate.write_bytes(issued.chain)
    key.write_bytes(issued.key)
    return certificate, key


def test_given_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    certificate, key = write(tmp_path, first.issue(NAMES))
    tls = Tls(GivenCertificate(certificate, key))
    assert shake(tls.context, trusting(first.trusted), NAMES[0])
    assert tls.look() is None
    certificate.write_bytes(second.issue(NAMES).chain)
    with pytest.raises(BadConfig, match="cannot be used"):  # the key has not come yet
        tls.look()
    assert shake(tls.context, trusting(first.trusted), NAMES[0])
    write(tmp_path, second.issue(NAMES))
    pair = tls.look()
    assert pair is not None
    tls.use(pair)
    assert shake(tls.context, trusting(second.trusted), NAMES[0])
    certificate.unlink()
    with pytest.raises(OSError, match=r"given\.pem"):
        tls.look()
    assert shake(tls.context, trusting(second.trusted), NAMES[0])


def test_a_key_with_a_password_is_refused_with_words(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    issued = Authority(tmp_path / "a").issue(NAMES)
    locked = load_pem_private_key(issued.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    certificate, key = write(tmp_path, Issued(issued.chain, locked))
    with pytest.raises(BadConfig, match="password"):
        Tls(GivenCertificate(certificate, key))


# -- the context ---------------------------------------------------------------------------


def test_old_versions_are_refused(tmp_path: Path) -> None:
    own = Authority(tmp_path / "tls")
    server, client = serving(own.issue(NAMES)), trusting(own.trusted)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    shook = shake(server, client, NAMES[0])
    cipher = shook.cipher()
    assert shook.version() == "TLSv1.2"
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-ECDSA-")
    assert server.minimum_version == ssl.TLSVersion.TLSv1_2
    old = trusting(own.trusted)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        shake(server, old, NAMES[0])


def test_sessions_are_resumed(tmp_path: Path) -> None:
    """Over real sockets: a ticket comes with the first bytes."""
    import socket

    own = Authority(tmp_path / "tls")
    server, client = serving(own.issue(NAMES)), trusting(own.trusted)

    def talk(session: ssl.SSLSession | None) -> ssl.SSLSocket:
        here, there = socket.socketpair()

        def answer() -> None:
            with server.wrap_socket(there, server_side=True) as wrapped:
                wrapped.send(b"x")

        thread = threading.Thread(target=answer)
        thread.start()
        wrapped = client.wrap_socket(here, server_hostname=NAMES[0], session=session)
        assert wrapped.recv(1) == b"x"
        thread.join(10)
        return wrapped

    first = talk(None)
    second = talk(first.session)
    assert (first.session_reused, second.session_reused) == (False, True)
    first.close()
    second.close()


def test_own_looks_for_its_names_each_time(tmp_path: Path) -> None:
    """The address of a host may change while its server runs."""
    names = list(NAMES)
    tls = Tls(OwnCertificate(tmp_path / "tls", lambda: names))
    assert tls.look() is None
    names.append("192.0.2.77")
    pair = tls.look()
    assert pair is not None
    tls.use(pair)
    assert shake(tls.context, trusting(tls.ca), "192.0.2.77")
    assert new_context().minimum_version == ssl.TLSVersion.TLSv1_2
