"""What several commands share: common options, error messages, completion, reading of words on the
command line. What `covey.python` needs as well is in `covey.frontend`."""
