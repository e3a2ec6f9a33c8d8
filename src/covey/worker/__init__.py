"""The program that runs function calls on a host; it is sent as one file, with a cloudpickle.

Like the pilot it uses only the standard library and Python 3.6, so that an old Python can at least
say why it cannot be used. In that file it is called `covey_worker`: the host may have its own
covey, which functions may want to import.
"""
