"""The files that the tasks of a draft need: finding them on this machine, when a bag is submitted
and when its inputs are looked at again. What an input may look like in a bag file belongs to
`format`; sending files belongs to `covey.client`.
"""
