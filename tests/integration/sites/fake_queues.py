"""Stands in for the commands of PBS, LSF and HTCondor, which tests cannot have.

Called by one of their names it takes the options that their manuals have, and no others, starts the
jobs at once as processes of this machine, and answers in the form of tests/data/sites. What it
knows is in the folder FAKE_QUEUES: a file for each job, and one with its exit status once it has
ended. It proves that commands and answers fit together, not that real systems agree.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

FOLDER = "FAKE_QUEUES"
RUN = '"$@"; echo $? >"$STATUS.new"; mv "$STATUS.new" "$STATUS"'
KILLED = {"qdel": "271", "bkill": "137", "condor_rm": "-15"}  # below 0: removed, by this signal
NAMES = (
    *("qsub", "qselect", "qstat", "qdel", "bsub", "bjobs", "bkill"),
    *("condor_submit", "condor_q", "condor_rm", "condor_history"),
)


def fail(words: str, status: int = 1) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(status)


def folder() -> Path:
    return Path(os.environ[FOLDER])


def options(
    argv: list[str], valued: str, flags: str = ""
) -> tuple[dict[str, list[str]], list[str]]:
    """As the manuals have them: words with a value, words without, then the rest."""
    found: dict[str, list[str]] = {}
    while argv and argv[0].startswith("-") and argv[0] != "-":
        word = argv.pop(0).lstrip("-")
        if word in valued.split():
            found.setdefault(word, []).append(argv.pop(0))
        elif word in flags.split():
            found.setdefault(word, [])
        else:
            fail(f"{sys.argv[0]}: illegal option -- {word}", 2)
    return found, argv


# -- jobs ----------------------------------------------------------------------------------


def start(title: str, indices: range, command: list[str], variable: str, stdin: bytes) -> int:
    job = 1 + max((int(path.name.split(".")[0]) for path in folder().glob("*.job")), default=0)
    (folder() / "stdin").write_bytes(stdin)
    for index in indices:
        base = folder() / f"{job}.{index}"
        with open(folder() / "stdin", "rb") as script:
            process = subprocess.Popen(
                ["/bin/sh", "-c", RUN, "sh", *command],
                env={**os.environ, variable: str(index), "STATUS": f"{base}.status"},
                stdin=script,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        facts = {"job": job, "index": index, "title": title, "pid": process.pid}
        Path(f"{base}.job").write_text(json.dumps(facts))
    return job


def jobs() -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder().glob("*.job")]
    for one in found:
        status = folder() / f"{one['job']}.{one['index']}.status"
        one["status"] = int(status.read_text()) if status.exists() else None
    return sorted(found, key=lambda one: (one["job"], one["index"]))


def kill(job: str, first: str, last: str = "") -> bool:
    hit = False
    for one in jobs():
        wanted = int(first) <= one["index"] <= int(last or first)
        if str(one["job"]) == job and wanted and one["status"] is None:
            status = folder() / f"{job}.{one['index']}.status"
            os.killpg(one["pid"], signal.SIGKILL)
            status.write_text(KILLED[Path(sys.argv[0]).name])
            hit = True
    return hit


# -- PBS -----------------------------------------------------------------------------------


def qsub(argv: list[str]) -> None:
    found, rest = options(argv, "N S j o C r J q A P l")
    if rest or found["C"] != [""]:
        fail("usage: qsub", 2)
    if found.get("q") == ["nope"]:
        fail("qsub: Unknown queue", 170)
    span = re.fullmatch(r"0-([1-9][0-9]*)", found["J"][0]) if "J" in found else None
    if "J" in found and (span is None or found.get("r") == ["n"]):
        fail("qsub: illegal -J value")
    many = range(int(span[1]) + 1) if span else range(1)
    variable = "PBS_ARRAY_INDEX" if span else "PBS_NONE"
    job = start(found["N"][0], many, found["S"], variable, sys.stdin.buffer.read())
    (folder() / f"{job}.array").write_text("yes" if span else "")
    print(f"{job}[].fake" if span else f"{job}.fake")


def is_array(job: int) -> bool:
    return bool((folder() / f"{job}.array").read_text())


def qselect(argv: list[str]) -> None:
    """What is in the queue; an array until all its elements have ended."""
    options(argv, "u")
    for job in dict.fromkeys(one["job"] for one in jobs() if one["status"] is None):
        print(f"{job}[].fake" if is_array(job) else f"{job}.fake")


def qstat(argv: list[str]) -> None:
    found, rest = options(argv, "", "f t x")
    for one in jobs():
        array = is_array(one["job"])
        whole = f"{one['job']}[].fake"
        id_ = f"{one['job']}[{one['index']}].fake" if array else f"{one['job']}.fake"
        gone = one["status"] is not None
        if id_ in rest or (array and whole in rest):
            state = ("F" if "x" in found else "X") if gone else "R"
            how = ("terminated by ann@fake" if one["status"] == 271 else "failed") if gone else ""
            comment = f"Job run at Mon Nov 16 at 09:37 on (fake:ncpus=2){how and ' and '}{how}"
            comment = comment if "x" in found or not gone else "Subjob finished"
            print(f"Job Id: {id_}\n    Job_Name = {one['title']}\n    job_state = {state}")
            print(f"    comment = {comment}\n    run_count = 1")
            print(f"    Exit_status = {one['status']}\n" if gone else "")


def qdel(argv: list[str]) -> None:
    for word in argv:
        match = re.fullmatch(r"([0-9]+)(?:\[([0-9]+)(?:-([0-9]+))?\])?\.fake", word)
        if match is None or not kill(match[1], match[2] or "0", match[3] or ""):
            fail(f"qdel: Unknown Job Id {word}", 153)


# -- LSF -----------------------------------------------------------------------------------


def bsub(argv: list[str]) -> None:
    found, rest = options(argv, "J cwd o q P G app n R W M gpu", "r rn x")
    if found.get("q") == ["nope"]:
        fail("nope: No such queue. Job not submitted.", 255)
    name = re.fullmatch(r"(.*)\[1-([0-9]+)\]", found["J"][0])
    if name is None or not rest:
        fail("Bad job name. Job not submitted.", 255)
    job = start(name[1], range(1, int(name[2]) + 1), rest, "LSB_JOBINDEX", b"")
    print(f"Job <{job}> is submitted to default queue <normal>.")


def bjobs(argv: list[str]) -> None:
    found, _ = options(argv, "J o", "a json")
    prefix = found["J"][0].removesuffix("*")
    records = []
    for one in jobs():
        status = one["status"]
        record = {
            "JOBID": str(one["job"]),
            "JOBINDEX": str(one["index"]),
            "STAT": "RUN" if status is None else "DONE" if status == 0 else "EXIT",
            "JOB_NAME": f"{one['title']}[{one['index']}]",
            "EXIT_CODE": str(status or ""),
            "EXIT_REASON": "",
            "PEND_REASON": "",
        }
        if one["title"].startswith(prefix):
            records.append(
                {field.upper(): record[field.upper()] for field in found["o"][0].split()}
            )
    if not records:
        fail(f"Job <{found['J'][0]}> is not found", 255)
    print(json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=2))


def bkill(argv: list[str]) -> None:
    for word in argv:
        match = re.fullmatch(r"([0-9]+)\[(.*)\]", word)
        spans = match[2].split(",") if match else []
        hits = [kill(match[1], *span.split("-")) for span in spans] if match else []
        if not any(hits):
            fail(f"Job <{word}>: Job has already finished", 255)


# -- HTCondor ------------------------------------------------------------------------------


def condor_submit(argv: list[str]) -> None:
    found, rest = options(argv, "append name pool", "terse")
    if rest[:2] != ["/dev/null", "-queue"]:
        fail("\nERROR: no queue")
    lines = dict(re.split(r" = ", line, maxsplit=1) for line in found["append"])
    if "nope" in lines.get("requirements", ""):
        fail("ERROR: Parse error in expression: \n\tRequirements = (nope) && (TARGET.Disk)\n\t")
    variable = lines["environment"].strip('"').removesuffix("=$(Process)")
    count = int(rest[2])
    job = start(lines["batch_name"], range(count), [lines["executable"]], variable, b"")
    print(f"{job}.0 - {job}.{count - 1}")


def ended(status: int) -> dict[str, Any]:
    if status >= 0:
        return {"ExitBySignal": False, "ExitCode": status, "JobStatus": 4}
    why = "via condor_rm (by user ann)"
    return {"ExitBySignal": True, "ExitSignal": -status, "JobStatus": 3, "RemoveReason": why}


def condor_list(history: bool, wanted: list[str]) -> None:
    ads = []
    for one in jobs():
        id_ = f"{one['job']}.{one['index']}"
        if (one["status"] is not None) == history and (not wanted or id_ in wanted):
            ad = {"ClusterId": one["job"], "ProcId": one["index"], "JobBatchName": one["title"]}
            now = ended(one["status"]) if history else {"ExitBySignal": False, "JobStatus": 2}
            ads.append({**ad, **now, "NumJobStarts": int(history)})
    if ads or history:  # a list of none, or nothing at all
        words = (json.dumps(ad, indent=2, sort_keys=True) for ad in ads)
        print("[\n" + "\n,\n".join(words) + ("\n]" if ads else "]"))


def condor_q(argv: list[str]) -> None:
    found, rest = options(argv, "constraint attributes name pool", "json")
    if rest or not re.fullmatch(r'substr\(JobBatchName, 0, \d+\) == ".*"', found["constraint"][0]):
        fail("Usage: condor_q")
    condor_list(False, [])


def condor_history(argv: list[str]) -> None:
    _, rest = options(argv, "attributes limit name pool", "json")
    condor_list(True, rest)


def condor_rm(argv: list[str]) -> None:
    gone = [word for word in argv if not kill(*word.split("."))]
    for word in argv:
        if word not in gone:
            print(f"Job {word} marked for removal")
    if gone:
        fail("\n" + "\n".join(f"Job {word} not found" for word in gone))


if __name__ == "__main__":
    globals()[Path(sys.argv[0]).name](sys.argv[1:])
