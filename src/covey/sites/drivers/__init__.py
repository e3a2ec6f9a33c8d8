"""One module for each kind of site, and `common`, which several of those with commands need. When
a site is asked, and what its answers mean, is not decided here but in `covey.sites.queue_site`."""
