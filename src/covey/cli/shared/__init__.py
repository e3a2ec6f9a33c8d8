"""What several commands share: common options, errors, completion, and how words on the command
line are read. What Python shows as well is in `covey.frontend`."""
