"""The processes that run tasks (guard, keeper, slots and what they start), from order to outcome.
`covey.pilot.walls` keeps tasks apart from each other; `covey.pilot.files` has their files."""
