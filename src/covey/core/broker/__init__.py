"""What a site is worth to a bag: the algorithms that weigh sites, the weights that services give,
and what was decided last. `core.sites` decides how many pilots follow from that."""
