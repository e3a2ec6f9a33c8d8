"""The record: what must survive the server. `Record` and `Reader` in `covey.ports` say what a
store promises; `memory` and `sqlite` keep it, and `writer` puts a thread around either.
"""
