"""The batch systems that covey knows by itself: commands out, answers in, nothing done."""
