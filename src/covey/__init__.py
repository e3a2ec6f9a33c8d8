"""One queue over every machine you can reach.

    import covey

    bag = covey.submit("python3 fit.py {seed}", inputs="fit.py", parameters={"seed": range(100)})
    bag.wait().results().frame()

This file also travels to other people's hosts, so it stays light and runs on Python 3.6: each name
is fetched from where it is made when it is first used. `__init__.pyi` tells types about them.
"""

__all__ = [
    "BadConfig",
    "BadFile",
    "Bag",
    "BagPaused",
    "Connection",
    "CoveyError",
    "Executor",
    "Failures",
    "InsideTask",
    "InvalidBag",
    "InvalidQuery",
    "Logs",
    "NotFound",
    "Progress",
    "Refused",
    "Result",
    "Results",
    "ServerAway",
    "StillRunning",
    "Task",
    "Tasks",
    "Unconfirmed",
    "__version__",
    "connect",
    "submit",
    "task",
]

__version__ = "0.1.0"


def __getattr__(name):
    homes = {
        "covey.executor": ("Executor", "task"),
        "covey.python.bag": ("Bag", "Progress"),
        "covey.python.connection": ("Connection", "connect", "submit"),
        "covey.python.results": ("Failures", "Result", "Results"),
        "covey.python.task": ("Logs", "Task", "Tasks"),
        "covey.core.errors": __all__,
    }
    if name not in __all__:
        raise AttributeError(f"module 'covey' has no attribute {name!r}")
    from importlib import import_module

    home = next(home for home, names in homes.items() if name in names)
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__():
    return sorted(set(globals()) | set(__all__))
