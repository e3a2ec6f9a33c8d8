"""Files of tasks: fetched and cached, placed, found, returned, removed. Everything in a task's
directory is opened by descriptor (`safe_paths`), because the task may change it at any moment."""
