"""The machines of a world: network, server and its disk, sites, pilots, and a pilot that lies. They
are real covey code between virtual ports. What people ask for is in `people`; whether all of it was
right is judged in `checkers`."""
