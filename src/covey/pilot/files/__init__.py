"""Files of tasks: fetch, cache, place, find, return and remove them. Everything in a task's
directory is opened by descriptor (`safe_paths`), because the task may change it at any moment."""
