"""The file that `covey init` writes. It runs unchanged, and shows every key except those of
policies."""

EXAMPLE = """\
# A bag: many tasks that differ in their parameters. Every key is explained in docs/bagfile.md.
#
#   covey run {file} --dry-run     look at it first
#   covey run {file}               run it and watch
#   covey results                  one table of everything

name = "example"
notes = "How far a random walk gets."

# Each task runs this program. Its parameters are environment variables.
script = '''
#!/usr/bin/env python3
import json, os, random

steps, seed = int(os.environ["steps"]), int(os.environ["seed"])
random.seed(seed)
place = sum(random.choice((-1, 1)) for _ in range(steps))
print(json.dumps({{"place": place}}))  # the last line: values for the table of results
'''
# args = "--fast {{seed}}"     # arguments of the script
# Or a command, in which {{NAME}} stands for a value:
# command = "python3 walk.py --steps {{steps}} --seed {{seed}}"

# Files for the tasks: paths, patterns, directories, URLs; with {{NAME}} for each task's own.
# inputs = ["walk.py", "data/", "cases/{{case}}.json"]

# Files that come back; fetch them with 'covey pull'.
# outputs = ["*.dat"]             # each must be there, or the task has failed
# optional_outputs = ["*.log"]    # need not; those of failed tasks come back, too
# output_limit = "1 GB"           # the most that one task may return
# log_limit = "64 kB"             # how much is kept of what it prints

# Rows of a file as parameters: .csv, .jsonl, or .txt (one {{line}} each).
# rows = "cases.csv"

# Tasks may be added later, with 'covey append', until 'covey close'.
# open = true

# Run all tasks in this directory, instead of each in an empty one of its own.
# chdir = "."

# Every parameter is an environment variable, too; for a script it always is.
# export = true

# Run once on each host, before its first task; what it puts into $COVEY_SETUP stays for the tasks.
# setup = "python3 -m venv $COVEY_SETUP/venv"
# setup_time = "30m"

# Number of failures in a row, without a success, that pause the bag; 0: never.
# breaker = 30

# Running a task twice would do harm: covey then never repeats one unless you ask for it.
# idempotent = false

# Tasks with a longer time go first; "given": in the order of the parameters.
# order = "given"

# What splits the bag's pilots over sites: room, static, measured, random, least-loaded, price; and
# for price, when the bag should be done. docs/sites.md explains them.
# broker = "price"
# finish_in = "6h"

# Every combination is a task: here 3 x 5. Side by side instead: zip = ["steps", "seed"]
[parameters]
steps = [100, 1000, 10000]
seed = "1..5"

[labels]
kind = "example"

# [environment]
# THREADS = 4
# inherit = ["HOME"]

[resources]
cores = 1
memory = "500 MB"
time = "5m"
# disk = "1 GB"
# gpus = 1
# pin = true     # bind each task to cores of its own
# memory = "{{mem}} GB"          # or a parameter of each task says how much, such as a column

# Other needs for some tasks.
[[resources.when]]
steps = "5000.."
memory = "1 GB"

[retries]
count = 1
memory = "x2"  # after running out of memory
time = "x3"    # after the time limit …
overtimes = 3  # … this often

# Where tasks run, and when a task gets a second attempt: throughput (the default), fast-tail,
# reliable-tail, frugal, or expressions of your own. docs/policies.md explains them.
# [policy]
# preset = "fast-tail"
# requirements = "Host.Memory >= 4000"

# [validate]
# exit = [0, 3]
# files = ["out.dat"]
# check = "test -s out.dat"
"""


def example(file: str) -> str:
    """The text for a file of this name."""
    return EXAMPLE.format(file=file)
