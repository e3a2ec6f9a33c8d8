"""Which task goes to which pilot: policies and what they see, ranks, fit, replicas, and whose fault
a failure is. How many pilots there are is decided in `covey.core.sites`; words for people are in
`covey.core.explain`."""
