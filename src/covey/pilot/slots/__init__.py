"""The processes that run tasks: guard, keeper, slots and what they start, from order to outcome.
What keeps tasks apart from each other is in `covey.pilot.walls`, their files are in
`covey.pilot.files`."""
