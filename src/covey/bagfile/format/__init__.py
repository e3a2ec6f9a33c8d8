"""What may stand in a bag file: keys, kinds of values, and how both are read, with the line of each
mistake. Options of commands and keywords of Python are checked by the same tables. What a bag then
is belongs to `draft`; no file but the bag file itself is opened here.
"""
