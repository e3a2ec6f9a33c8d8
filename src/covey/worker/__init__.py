"""The program that does function calls on a host; it travels as one file, with a cloudpickle.

Like the pilot it keeps to the standard library and to Python 3.6, so that an old Python can at
least say why it will not do. In that file it is called `covey_worker`: the host may have a covey of
its own, which functions may want to import.
"""
