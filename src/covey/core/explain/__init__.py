"""Why something is as it is, and what is wrong with a policy, in words for people. Nothing is
decided here, and asking changes nothing."""
