"""Errors between covey and a site. The class of an error answers two questions: may the jobs be at
the site, and would it help to try again?

    SiteError
    ├── Refused    the site refused these jobs: surely none of them is there
    │   └── Away   the site does not answer, or the call was surely not made; try again later
    └── Unclear    the call failed, and its effect is not known; the next list shows it

A `transient` error is about the site, so other jobs need not be tried now. Any other is about the
jobs. Anything else that a driver raises is a bug of the driver.
"""

from covey.core.errors import CoveyError


class SiteError(CoveyError):
    """The text is for people: the site's own words, if there are any."""

    transient = True


class Refused(SiteError):
    transient = False


class Away(Refused):
    transient = True


class Unclear(SiteError):
    pass
