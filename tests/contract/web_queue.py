"""A driver that makes calls of an API, as one for a cloud would, and the API that it calls.

`WebApi` is a cloud in this process: it keeps files and jobs, and forgets nothing. A job is a
process that runs the script that came with it. The driver has no commands, no shell and no
directory at the site; it takes every part of a driver for itself, options that are tables included.
"""

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from covey.core.record.model import SiteFacts, SiteSpec
from covey.sites.driver import OpenSite, Seen, SiteContext, Stand, Submission
from covey.sites.errors import Away, Refused, Unclear
from covey.sites.options import options_of
from covey.sites.queue_site import QueueSite
from covey.sites.script import job_script

CALL_SECONDS = 10.0


# -- the driver -------------------------------------------------------------------------------


class Machine(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Annotated[str, Meta(description="Kind of machine.")] = "small"
    whole: Annotated[bool, Meta(description="A machine is for one pilot.")] = False


class Volume(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(description="Name of the volume.")]
    size_gb: Annotated[int, Meta(ge=1, description="Its size.")] = 10


class WebOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    url: Annotated[str, Meta(description="Address of the API.")]
    machine: Annotated[Machine, Meta(description="The machine of a pilot.")] = Machine()
    volumes: Annotated[tuple[Volume, ...], Meta(description="Volumes of a machine.")] = ()
    labels: Annotated[dict[str, str], Meta(description="Labels of a machine.")] = {}


class Web:
    name = "web"
    options: type[Struct] = WebOptions

    def facts(self, spec: SiteSpec) -> SiteFacts:
        """Machines are not shared, so neither are accounts."""
        options = options_of(spec, WebOptions)
        log = f"{options.url}/jobs/{{handle}}/log"
        return SiteFacts(whole_nodes=options.machine.whole, accounts=(), log=log)

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        return QueueSite(spec, lambda spec: WebQueue(spec, context), context).start()


class WebQueue:
    most_jobs = 1

    def __init__(self, spec: SiteSpec, context: SiteContext) -> None:
        self._spec = spec
        self._context = context
        self._options = options_of(spec, WebOptions)

    def prepare(self, submission: Submission) -> Callable[[], Sequence[str]]:
        pilot = self._context.read_pilot_file()
        path = self._call("PUT", f"/files/{pilot.name}", pilot.data)["path"]
        source = self._context.pilot_source(path, pilot.digest)
        [name] = submission.names
        order = {
            "name": name,  # also the token by which a call that is repeated does nothing
            "kind": self._options.machine.kind,
            "volumes": [volume.name for volume in self._options.volumes],
            "cores": submission.shape.slots,
            "script": job_script(self._spec, submission.jobs, "0", source),
        }
        body = json.dumps(order).encode()
        return lambda: (self._call("POST", "/jobs", body)["id"],)

    def listed(self, prefix: str) -> Sequence[Seen]:
        return [
            Seen(job["name"], job["id"], Stand(job["state"]), job["reason"])
            for job in self._call("GET", f"/jobs?prefix={prefix}")["jobs"]
        ]

    def cancel(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self._call("DELETE", f"/jobs/{handle}")

    def accounts(self, handles: Sequence[str]) -> None:
        return None  # ended jobs stay in its list

    def capacity(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self._options.url + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            words = error.read().decode()
            raise (Away if error.code == 503 else Refused)(words) from error
        except urllib.error.URLError as error:  # nobody was there to hear it
            raise Away(f"{self._options.url}: {error.reason}") from error
        except (OSError, ValueError) as error:
            raise Unclear(f"{type(error).__name__}: {error}") from error


# -- the API ----------------------------------------------------------------------------------


class WebApi:
    """`trouble`: a status and words that POST is answered with. `deaf`: POST does what it is asked
    for, and then the connection breaks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.trouble: tuple[int, str] | None = None
        self.deaf = False
        self.orders: dict[str, dict[str, Any]] = {}  # by the name of the job
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                status, answer = api.call(self.command, self.path, self.rfile.read(size))
                if not status:
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer.encode())

            do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def call(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        """A status (0: no answer), and what is said."""
        with self._lock:
            if method == "PUT":
                file = self.folder / path.rpartition("/")[2]
                file.write_bytes(body)
                return 201, json.dumps({"path": str(file)})
            if method == "DELETE":
                process = self._processes[path.rpartition("/")[2]]
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                return 200, "{}"
            if method == "GET":
                prefix = path.partition("prefix=")[2]
                names = [name for name in self.orders if name.startswith(prefix)]
                return 200, json.dumps({"jobs": [self._shown(name) for name in names]})
            if self.trouble is not None:
                return self.trouble
            order = json.loads(body)
            self._start(order["name"], order)
            answer = json.dumps({"id": self.orders[order["name"]]["id"]})
            return (0, "") if self.deaf else (201, answer)

    def _start(self, name: str, order: dict[str, Any]) -> None:
        if name in self.orders:
            return
        id_ = f"i-{len(self.orders)}"
        self.orders[name] = {**order, "id": id_}
        script = self.folder / id_
        script.touch(0o700)
        script.write_text(order["script"])
        with (self.folder / f"{id_}.log").open("wb") as log:
            self._processes[id_] = subprocess.Popen(
                ["/bin/sh", str(script)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _shown(self, name: str) -> dict[str, str]:
        id_ = self.orders[name]["id"]
        status = self._processes[id_].poll()
        state, reason = ("running", "") if status is None else ("ended", f"exit status {status}")
        return {"id": id_, "name": name, "state": state, "reason": reason}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
