"""Bags: accepted or refused, changed by their owners, summed up, estimated, quarantined. Which of
their tasks go where is decided in `covey.core.match`, what the end of an attempt means in
`covey.core.protocol`."""
