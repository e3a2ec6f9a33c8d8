"""What goes wrong between covey and a site. Two questions are answered by the kind of an error: may
the jobs be there, and would it help to try again?

    SiteError
    ├── Refused    the site will not have these jobs: surely none of them is there
    │   └── Away   the site does not answer, or the call surely was not made; later it may
    └── Unclear    the call failed, and nobody knows what came of it; a list will tell

`transient` errors tell of the site, so others need not be tried now. Those that are not tell of the
jobs. Anything else that a driver raises is a bug of the driver.
"""

from covey.core.errors import CoveyError


class SiteError(CoveyError):
    """With words for people, the site's own if it has said any."""

    transient = True


class Refused(SiteError):
    transient = False


class Away(Refused):
    transient = True


class Unclear(SiteError):
    pass
