"""The file that `covey init` writes: it runs as it is, and shows most of what there is."""

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
# Or a command, in which {{NAME}} stands for a value:
# command = "python3 walk.py --steps {{steps}} --seed {{seed}}"

# Files for the tasks: paths, patterns, directories, URLs; with {{NAME}} for each task's own.
# inputs = ["walk.py", "data/", "cases/{{case}}.json"]

# Files that come back; fetch them with 'covey pull'.
# outputs = ["*.dat"]

# Rows of a file as parameters: .csv, .jsonl, or .txt (one {{line}} each).
# rows = "cases.csv"

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

# Other needs for some tasks.
[[resources.when]]
steps = "5000.."
memory = "1 GB"

[retries]
count = 1
memory = "x2"  # after a lack of memory
time = "x3"    # after the time limit

# What decides where tasks run and when one runs twice: throughput (if nothing is said), fast-tail,
# reliable-tail, frugal, or expressions of your own. docs/policies.md explains them.
# [policy]
# preset = "fast-tail"
# requirements = "Host.Memory >= 4000"

# [validate]
# files = ["out.dat"]
# check = "test -s out.dat"
"""


def example(file: str) -> str:
    """The text for a file of this name."""
    return EXAMPLE.format(file=file)
