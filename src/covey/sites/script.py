"""The script that a site's queue runs: it becomes a pilot.

It makes a private directory, writes the start file there (that is where secrets travel: never in
arguments or environments), runs the site's `setup` in its own shell, so that the modules it loads
are the pilot's and its tasks', and then *is* the pilot (`exec`): a signal that a batch system sends
to its job reaches the pilot once, and it drains. The pilot removes the directory. A script that a
host without a batch system runs removes itself first: it holds the job's secret.

The pilot file was put at the site once; where a node cannot read it, it is fetched from the server.
It is run only if it is the file that the server put there, by its SHA-256 (`BOOT`).
The wall time counts from the script's start, by the node's own clock. What is needed after `setup`
has names that it will not use: one of them is removed at the end.

An array has one script for all its elements: `index` is the shell's word for the element's number,
which finds the job's own name and secret.
"""

import json
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from covey.core.protocol.tokens import job_secret
from covey.core.record.model import JobRecord, SiteSpec

FOLDER = "COVEY_FOLDER"  # where the start file goes, if not to the private directory

# Becomes the pilot. The file is read once, and what was read is what runs: whoever shares the
# account may replace the file at any time, but not what is in this process. The server's pilot file
# is for everybody. Over HTTPS whoever answers has shown that it is the server; over anything else,
# and in the site's directory, the file must be the one that we know. Nothing is imported from the
# current directory or from the user's own packages. A shell hands on 4096 characters by itself; for
# a longer text it would start a process, which the pilot would inherit.
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
    told = json.load(open(start))
    url = told["address"].rstrip("/") + "/pilot/v1/pilot.pyz"
    handlers = [web.HTTPSHandler(context=ssl.create_default_context(cadata=told["ca"] or None))]
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

# `module` is a function of login shells, which the shells of jobs often are not.
SETUP = """\
if ! command -v module >/dev/null 2>&1; then
  for file in /etc/profile.d/modules.sh /etc/profile.d/*lmod.sh; do
    if test -r "$file"; then . "$file"; fi
  done
fi
eval @commands || fail "the site's setup failed"
"""


class PilotSource(NamedTuple):
    """What pilots are told of their server, and where they find the pilot file, by its digest."""

    address: str
    ca: str  # PEM
    master: str
    pilot: str
    digest: str


def job_script(spec: SiteSpec, jobs: Sequence[JobRecord], index: str, source: PilotSource) -> str:
    """For these jobs, which are alike but for their names, in the order of their numbers."""
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
        "start": json.dumps(start)[1:],  # one line, that none in it can end
        "python": shlex.quote(spec.python),
        "pilot": shlex.quote(source.pilot),
        "digest": source.digest,
        "boot": BOOT.rstrip(),
    }
    return re.sub(r"@([a-z]+)", lambda mark: parts[mark[1]], SCRIPT)


def _choice(jobs: Sequence[JobRecord], index: str, master: str) -> str:
    """Who this job is. Ids and secrets are plain letters and numbers."""
    if len(jobs) == 1:
        return f"job={jobs[0].id} secret={job_secret(master, jobs[0].id)}"
    lines = [
        f"{number}) job={job.id} secret={job_secret(master, job.id)};;"
        for number, job in enumerate(jobs)
    ]
    return "\n".join(
        [f"case {index} in", *lines, '*) fail "this job array has no such index";;', "esac"]
    )
