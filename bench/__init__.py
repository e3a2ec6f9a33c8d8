"""Measurements of covey on one machine: `python -m bench --list` names them."""
