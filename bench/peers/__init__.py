"""covey beside its peers: the same cases, on the same machine, in the same run."""
