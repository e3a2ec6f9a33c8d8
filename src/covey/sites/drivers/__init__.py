"""One module for each kind of site, and `common`, for several drivers with commands. When a site is
asked, and what follows from its answers, is decided in `covey.sites.queue_site`, not here."""
