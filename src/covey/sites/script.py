"""The script of a site job: it becomes a pilot.

It makes a private directory and writes the start file there, which has the job's secret (secrets
are never in arguments or environments). It runs the site's `setup` in its own shell, so that the
pilot and its tasks have the modules that setup loads. Then it becomes the pilot (`exec`): a signal
of the batch system to its job reaches the pilot once, and the pilot drains. The pilot removes the
directory. On a host without a batch system the script removes itself first: it has the secret.

The pilot file was put at the site once; a node that cannot read it fetches it from the server. It
runs only if its SHA-256 is that of the server's file (`BOOT`).
The wall time counts from the script's start, by the node's clock. Variables that are needed after
`setup` begin with covey_, so that setup does not change them.

An array has one script for all its elements: `index` is the shell's word for the element's number,
which selects the job's name and secret.
"""

import json
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from covey.core.protocol.tokens import job_secret
from covey.core.record.model import JobRecord, SiteSpec

FOLDER = "COVEY_FOLDER"  # where the start file goes, if not to the private directory

# Becomes the pilot. The file is read once, and the bytes that were read are run: other users of the
# account may replace the file at any time, but not the memory of this process. The server gives its
# pilot file to everybody. A file that came over HTTPS is surely the server's; any other, and the
# one in the site's directory, must have the SHA-256 that the server gave. Nothing is imported from
# the current directory or from the user's own packages. A shell passes on a text of up to 4096
# characters by itself; for a longer one it starts a process, which the pilot would inherit.
BOOT = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import hashlib, importlib.util, io, json, os, shutil, zipfile
path, digest, start = sys.argv[1:4]
def fail(words):
    shutil.rmtree(json.load(open(start))["directory"], ignore_errors=True)
    if os.path.exists(start):
        os.unlink(start)
    sys.exit("covey: " + words)
def fetched():
    import ssl, time
    import urllib.request as web
    server = json.load(open(start))
    url = server["address"].rstrip("/") + "/pilot/v1/pilot.pyz"
    handlers = [web.HTTPSHandler(context=ssl.create_default_context(cadata=server["ca"] or None))]
    if not url.startswith("https:"):
        handlers.append(web.ProxyHandler({}))
    for pause in (1, 4, 15, 0):
        try:
            with web.build_opener(*handlers).open(url, timeout=60) as answer:
                return answer.read(), url.startswith("https:")
        except Exception as error:
            if not pause:
                fail("the pilot file cannot be fetched: %s" % error)
            time.sleep(pause)
try:
    data, sure = open(path, "rb").read(), False
except OSError:
    path, (data, sure) = "pilot.pyz", fetched()
if not sure and hashlib.sha256(data).hexdigest() != digest:
    fail("the pilot file %s was changed: it is not the file that the server wrote; nothing was run"
         % path)
class Pilot:
    archive = path
    def __init__(self):
        packed = zipfile.ZipFile(io.BytesIO(data))
        self.texts = dict((name, packed.read(name)) for name in packed.namelist())
    def find_spec(self, name, *_):
        for end in ("/__init__.py", ".py"):
            file = name.replace(".", "/") + end
            if file in self.texts:
                origin = path + "/" + file
                return importlib.util.spec_from_loader(
                    name, self, origin=origin, is_package=end != ".py")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        self.run(module.__spec__.origin, module.__dict__)
    def run(self, origin, names):
        exec(compile(self.texts[origin[len(path) + 1:]], origin, "exec"), names)
    def get_source(self, name):
        return self.texts[self.find_spec(name).origin[len(path) + 1:]].decode()
try:
    pilot = Pilot()
except Exception as error:
    fail("the pilot file cannot be read: %s" % error)
sys.meta_path.insert(0, pilot)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
sys.argv = [path, start]
pilot.run(path + "/__main__.py", {"__name__": "__main__", "__builtins__": __builtins__})
"""

SCRIPT = """\
#!/bin/sh
# Becomes a pilot of covey. It holds the secret of its job: show it to nobody.
covey_mask=$(umask)
umask 077
covey_ends=@until
covey_start=
covey_folder=${@folder:-}
unset @folder
if test -n "$covey_folder" && test "$0" = "$covey_folder/script"; then rm -f "$0"; fi
covey_here=$(mktemp -d "${TMPDIR:-/tmp}/covey-pilot-XXXXXXXX") || exit 1
trap 'rm -rf "$covey_here"; test -z "$covey_start" || rm -f "$covey_start"' EXIT
trap 'exit 143' HUP INT TERM
fail() { echo "covey: $1" >&2; exit 1; }
case $covey_here in *[\\\\\\"]*) fail "TMPDIR has quotes in its name: $covey_here";; esac
@setup
@choice
covey_start=${covey_folder:-$covey_here}/start.json
{
  printf '{"directory": "%s", "until": %s, "job": "%s", "secret": "%s", ' \\
    "$covey_here" "$covey_ends" "$job" "$secret"
  cat <<'COVEY'
@start
COVEY
} >"$covey_start" || fail "cannot write $covey_start"
unset secret
python=@python
case $python in "~/"*) python=$HOME/${python#"~/"};; esac
command -v "$python" >/dev/null 2>&1 || fail "no $python on this host: set 'python' for this site"
umask "$covey_mask"
exec "$python" -s - @pilot @digest "$covey_start" <<'COVEY'
@boot
COVEY
"""

# `module` is a function that login shells define; the shell of a job is often not a login shell.
SETUP = """\
if ! command -v module >/dev/null 2>&1; then
  for file in /etc/profile.d/modules.sh /etc/profile.d/*lmod.sh; do
    if test -r "$file"; then . "$file"; fi
  done
fi
eval @commands || fail "the site's setup failed"
"""


class PilotSource(NamedTuple):
    """The server's address and authority, and the path and SHA-256 of the pilot file."""

    address: str
    ca: str  # PEM
    master: str
    pilot: str
    digest: str


def job_script(spec: SiteSpec, jobs: Sequence[JobRecord], index: str, source: PilotSource) -> str:
    """The script for these jobs, which differ only in their names, in the order of their
    numbers."""
    first = jobs[0]
    start = {
        "address": source.address,
        "ca": source.ca,
        "slots": first.slots,
        "site": spec.name,
        "memory_mb": first.memory_mb,
        "disk_mb": first.disk_mb,
        "gpus": "" if first.gpus else "none",
        "shared": spec.shared,
        "check": spec.check,
    }
    wall = int(first.wall_seconds)
    parts = {
        "setup": SETUP.replace("@commands", shlex.quote(spec.setup)) if spec.setup else "",
        "choice": _choice(jobs, index, source.master),
        "until": f"$(($(date +%s) + {wall}))" if wall else "0",
        "folder": FOLDER,
        "start": json.dumps(start)[1:],  # a single line: JSON escapes line breaks
        "python": shlex.quote(spec.python),
        "pilot": shlex.quote(source.pilot),
        "digest": source.digest,
        "boot": BOOT.rstrip(),
    }
    return re.sub(r"@([a-z]+)", lambda mark: parts[mark[1]], SCRIPT)


def _choice(jobs: Sequence[JobRecord], index: str, master: str) -> str:
    """Shell code that sets the job's id and secret: both are plain letters and digits."""
    if len(jobs) == 1:
        return f"job={jobs[0].id} secret={job_secret(master, jobs[0].id)}"
    lines = [
        f"{number}) job={job.id} secret={job_secret(master, job.id)};;"
        for number, job in enumerate(jobs)
    ]
    return "\n".join(
        [f"case {index} in", *lines, '*) fail "this job array has no such index";;', "esac"]
    )
