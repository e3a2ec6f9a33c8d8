"""The Python library: connections, bags, tasks and results.

Users import all names from `covey`. It loads a module of this package when one of its names is
first used.
"""
