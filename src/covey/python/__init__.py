"""covey for people who write Python: connections, bags, tasks and results.

Users import all of it from `covey`, which loads a module here when one of its names is first used.
"""
