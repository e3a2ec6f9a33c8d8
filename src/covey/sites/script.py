"""The script that a site's queue runs: it becomes a pilot.

It makes a private directory, writes the start file there (that is where secrets travel: never in
arguments or environments), runs the site's `setup` in its own shell, so that the modules it loads
are the pilot's and its tasks', and then *is* the pilot (`exec`): a signal that a batch system sends
to its job reaches the pilot once, and it drains. The pilot removes the directory.

The pilot file was put at the site once; where a node cannot read it, it is fetched from the server.
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

from covey.core.model import JobRecord, SiteSpec
from covey.core.tokens import job_secret

FOLDER = "COVEY_FOLDER"  # where the start file goes, if not to the private directory

# The server's pilot file is for everybody. Over HTTPS whoever answers has shown that it is the
# server; over anything else the file must be the one that we know.
FETCH = """\
import hashlib, json, ssl, sys, time
import urllib.request as web
start, path, digest = sys.argv[1:4]
told = json.load(open(start))
url = told["address"].rstrip("/") + "/pilot/v1/pilot.pyz"
handlers = [web.HTTPSHandler(context=ssl.create_default_context(cadata=told["ca"] or None))]
if not url.startswith("https:"):
    handlers.append(web.ProxyHandler({}))
for pause in (1, 4, 15, 0):
    try:
        with web.build_opener(*handlers).open(url, timeout=60) as answer:
            data = answer.read()
        break
    except Exception as error:
        if not pause:
            sys.exit("covey: the pilot file cannot be fetched: %s" % error)
        time.sleep(pause)
if not url.startswith("https:") and hashlib.sha256(data).hexdigest() != digest:
    sys.exit("covey: the pilot file is not what it should be")
with open(path, "wb") as file:
    file.write(data)
"""

SCRIPT = """\
#!/bin/sh
# Becomes a pilot of covey. It holds the secret of its job: show it to nobody.
covey_mask=$(umask)
umask 077
covey_ends=@until
covey_here=$(mktemp -d "${TMPDIR:-/tmp}/covey-pilot-XXXXXXXX") || exit 1
trap 'rm -rf "$covey_here"' EXIT
trap 'exit 143' HUP INT TERM
fail() { echo "covey: $1" >&2; exit 1; }
case $covey_here in *[\\\\\\"]*) fail "TMPDIR has quotes in its name: $covey_here";; esac
@setup
@choice
start=${@folder:-$covey_here}/start.json
{
  printf '{"directory": "%s", "until": %s, "job": "%s", "secret": "%s", ' \\
    "$covey_here" "$covey_ends" "$job" "$secret"
  cat <<'COVEY'
@start
COVEY
} >"$start" || fail "cannot write $start"
python=@python
case $python in "~/"*) python=$HOME/${python#"~/"};; esac
command -v "$python" >/dev/null 2>&1 || fail "there is no $python here: say 'python' at the site"
pilot=@pilot
if ! test -r "$pilot"; then
  pilot=$covey_here/pilot.pyz
  "$python" - "$start" "$pilot" @digest <<'COVEY' || exit 1
@fetch
COVEY
fi
unset secret
umask "$covey_mask"
exec "$python" "$pilot" "$start" </dev/null
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


class Told(NamedTuple):
    """What pilots are told of their server, and where they find the pilot file, by its digest."""

    address: str
    ca: str  # PEM
    master: str
    pilot: str
    digest: str


def job_script(spec: SiteSpec, jobs: Sequence[JobRecord], index: str, told: Told) -> str:
    """For these jobs, which are alike but for their names, in the order of their numbers."""
    first = jobs[0]
    start = {
        "address": told.address,
        "ca": told.ca,
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
        "choice": _choice(jobs, index, told.master),
        "until": f"$(($(date +%s) + {wall}))" if wall else "0",
        "folder": FOLDER,
        "start": json.dumps(start)[1:],  # one line, that none in it can end
        "python": shlex.quote(spec.python),
        "pilot": shlex.quote(told.pilot),
        "digest": told.digest,
        "fetch": FETCH.rstrip(),
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
    return "\n".join([f"case {index} in", *lines, '*) fail "this array has no such job";;', "esac"])
