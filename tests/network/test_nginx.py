"""A server behind nginx, the real one, with the configuration that `docs/nginx.conf` recommends."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from covey.config import Serve
from covey.pilot.files import uploads
from covey.pilot.protocol import messages
from covey.server.api import files
from covey.server.web import requests
from covey.server.web.certificate_authority import Authority
from covey.whoami import user
from tests.faults.world import World, kill_process, open_world, task_script, wait_until
from tests.network.remote import Remote
from tests.network.serving import (
    authority_file,
    covey,
    pilot,
    port_of,
    serve,
    wait_enrolled,
)

RECOMMENDED = Path(__file__).parents[2] / "docs" / "nginx.conf"
LARGE = 5_000_000  # more than one piece, and more than nginx lets through by itself
COPY = "cat in > out; echo {i} >> out"

# What surrounds it; with everything that nginx writes in one place.
MAIN = """
user root; worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/error warn;
events {{ worker_connections 1024; }}
http {{
    access_log {folder}/access;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{text}
}}
"""
# As people have it who change nothing but the address. Its minute of patience is a second here.
BARE = """
server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    location / {{ proxy_pass http://127.0.0.1:{server}; proxy_read_timeout 1s; }}
}}
"""


class Nginx:
    def __init__(self, world: World, port: int, text: str) -> None:
        self.port = port
        self.folder = world.root / "nginx"
        self.folder.mkdir()
        self._world = world
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "conf").write_text(MAIN.format(folder=self.folder, text=text))

    def start(self) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "tools/install-test-packages"
        words = [program, "-p", str(self.folder), "-c", str(self.folder / "conf")]
        self._process = self._world.start(words, start_new_session=True)
        wait_until(self._listens, 10, self._world.log_tail)

    def reload(self) -> None:
        self._tell(signal.SIGHUP)

    def stop(self) -> None:
        """At once: connections end in the middle of whatever they carry."""
        if self._process is not None:
            self._tell(signal.SIGTERM)
            self._process.wait(30)
            self._process = None

    def said(self) -> str:
        return (self.folder / "access").read_text()

    def _tell(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def running(nginx: Nginx) -> Iterator[Nginx]:
    nginx.start()
    try:
        yield nginx
    finally:
        nginx.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def filled(text: str, **places: str) -> str:
    """The recommended file with all that depends on the place changed; each must be there."""
    changes = {
        "127.0.0.1:7443": f"127.0.0.1:{places['server']}",
        "listen 443 ssl": f"listen 127.0.0.1:{places['port']} ssl",
        "listen [::]:443 ssl": f"listen [::1]:{places['port']} ssl",
        "/etc/ssl/certs/covey.example.org.pem": places["certificate"],
        "/etc/ssl/private/covey.example.org.key": places["key"],
        "server_name covey.example.org": "server_name localhost",
    }
    if "ca" in places:
        text = text.replace("proxy_pass http://covey/;", "").replace("#proxy_", "proxy_")
        changes["/var/lib/covey/tls/ca.pem"] = places["ca"]
        changes["proxy_ssl_name covey.example.org"] = "proxy_ssl_name localhost"
    if "below" in places:
        changes["location / {"] = f"location {places['below']}/ {{"
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


class Site:
    """A server on its loopback, and nginx before it with a certificate that somebody gave."""

    def __init__(self, world: World, recommended: bool = True, **settings: str) -> None:
        institution = Authority(world.root / "institution")
        issued = institution.issue(["localhost"])
        self.certificate, self.key = world.root / "given.pem", world.root / "given.key"
        self.certificate.write_bytes(issued.chain)
        self.key.write_bytes(issued.key)
        self.ca = world.root / "institution" / "ca.pem"
        self.port = free_port()
        self.address = f"https://localhost:{self.port}"
        self.settings = {"public": self.address, "ca": str(self.ca), **settings}
        self.world = world
        self.server = self.serve()
        places = {
            "port": str(self.port),
            "server": str(port_of(world)),
            "certificate": str(self.certificate),
            "key": str(self.key),
        }
        text = filled(RECOMMENDED.read_text(), **places) if recommended else BARE.format(**places)
        self.nginx = Nginx(world, self.port, text)

    def serve(self) -> "subprocess.Popen[bytes]":
        found: subprocess.Popen[bytes] = serve(self.world, "--pilots", "0", **self.settings)
        return found


def copies(world: World, total: int, blob: bytes, work: str = COPY) -> int:
    placed = (Remote(world).placed("in", blob),)
    return world.submit(task_script(work), total, inputs=placed, outputs=("out",))


def check_copies(world: World, bag: int, data: bytes, total: int) -> None:
    world.wait_over(bag)
    world.check_results(bag, total)
    world.check_once(bag, total)
    expected = {(task, "out"): data + b"%d\n" % task for task in range(total)}
    assert Remote(world).returned(bag) == expected
    assert world.rows("SELECT count(*), min(status) FROM pilots") == [(1, "active")]


def test_a_bag_through_nginx_with_a_given_certificate(world: World, tmp_path: Path) -> None:
    """From people's files to results, all through nginx; nothing waits on its disk."""
    site = Site(world)
    data = os.urandom(LARGE)
    (tmp_path / "in").write_bytes(data)
    with running(site.nginx):
        pilot(world, site.address, site.ca)
        words = ["run", "--json", "-p", "i=0..3", "--input", str(tmp_path / "in")]
        words += ["--output", "out", "--", "sh", "-c", COPY]
        done = covey(world, site.address, site.ca, *words)
        assert done.returncode == 0, done.stderr
        shown = covey(world, site.address, site.ca, "bags", "--json")
        [bag] = [one["id"] for one in json.loads(shown.stdout)]
        expected = {(task, "out"): data + b"%d\n" % task for task in range(4)}
        assert Remote(world).returned(bag) == expected
        world.check_results(bag, 4)
        # Two syncs on two connections may pass one another in nginx (409, and it is sent again).
        said = site.nginx.said()
        codes = set(re.findall(r'HTTP/1.1" (\d+)', re.sub(r"/sync HTTP/1.1\" 409", "", said)))
        assert codes <= {"200", "201", "206"}, said
    assert "PUT /pilot/v1/files/" in site.nginx.said()
    assert not list((site.nginx.folder / "body").rglob("0*"))


def test_a_server_with_tls_of_its_own_below_a_path(world: World) -> None:
    """nginx shows the server's own certificate, checks it on the other side, and shares its name
    with others. A pilot comes by the line that `covey pilot-command` prints."""
    port = free_port()
    address = f"https://localhost:{port}/covey"
    serve(world, "--pilots", "0", tls="own", public=address, names="localhost")
    ca, own = authority_file(world), world.directory / "tls"
    text = filled(
        RECOMMENDED.read_text(),
        port=str(port),
        server=str(port_of(world)),
        certificate=str(own / "server.pem"),
        key=str(own / "server.key"),
        ca=str(ca),
        below="/covey",
    )
    data = os.urandom(LARGE)
    with running(Nginx(world, port, text)) as nginx:
        done = covey(
            world, address, ca, "pilot-command", "--json", "--slots", "2", "--owner", user()
        )
        assert done.returncode == 0, done.stderr
        line = json.loads(done.stdout)["command"]
        assert f"localhost:{port}/covey/" in line
        world.start(["sh", "-c", line], start_new_session=True)
        wait_enrolled(world)
        bag = copies(world, 3, data)
        check_copies(world, bag, data, 3)
        assert '"POST /covey/pilot/v1/sync HTTP/1.1" 200' in nginx.said()


def test_nginx_and_the_server_come_and_go_within_a_bag(world: World) -> None:
    site = Site(world)
    data = os.urandom(200_000)
    with running(site.nginx):
        flying = pilot(world, site.address, site.ca)
        wait_enrolled(world)
        bag = copies(world, 24, data, f"sleep 0.3; {COPY}")
        wait_until(lambda: world.ended(bag) >= 2, 30, world.log_tail)
        site.nginx.reload()
        wait_until(lambda: world.ended(bag) >= 8, 30, world.log_tail)
        site.nginx.stop()
        time.sleep(1)
        site.nginx.start()
        wait_until(lambda: world.ended(bag) >= 14, 30, world.log_tail)
        kill_process(site.server)
        wait_until(lambda: '" 502' in site.nginx.said(), 30)
        site.serve()
        check_copies(world, bag, data, 24)
        assert flying.poll() is None


def test_a_pilot_starts_while_nginx_has_no_server(world: World) -> None:
    site = Site(world)
    with running(site.nginx):
        kill_process(site.server)
        flying = pilot(world, site.address, site.ca)
        wait_until(lambda: site.nginx.said().count('" 502') >= 3, 30, world.log_tail)
        site.serve()
        wait_enrolled(world)
        assert flying.poll() is None


def test_nginx_as_it_comes_is_slower_but_loses_nothing(world: World) -> None:
    """It gives up parked questions, and connects anew for each."""
    site = Site(world, recommended=False, poll_seconds="3")
    data = os.urandom(200_000)
    with running(site.nginx):
        pilot(world, site.address, site.ca)
        wait_enrolled(world)
        wait_until(lambda: '" 504' in site.nginx.said(), 30)
        bag = copies(world, 6, data, f"sleep 0.5; {COPY}")
        check_copies(world, bag, data, 6)


def test_the_recommended_limits_are_beyond_our_own() -> None:
    text = RECOMMENDED.read_text()
    [seconds] = re.findall(r"^ *proxy_read_timeout (\d+)s;$", text, re.M)
    assert int(seconds) > max(requests.LONGEST_WAIT, 2 * Serve().poll_seconds)
    [size] = re.findall(r"^ *client_max_body_size (\d+)m;$", text, re.M)
    ours = (
        files.MOST_PIECE_BYTES,
        messages.MOST_SYNC_BYTES,
        requests.MOST_BYTES,
        uploads.PIECE_BYTES,
    )
    assert int(size) << 20 >= max(ours)
    assert urlsplit(re.findall(r'public = "(.*)"', text)[0]).scheme == "https"
