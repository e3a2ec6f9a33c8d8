"""Grid Engine, with what Son of Grid Engine 8.1.9 said (tests/data/sites/README.md)."""

import pytest

from covey.sites.driver import Output, Refused, Seen, Shape, Stand, Unclear
from covey.sites.drivers.gridengine import GridEngine
from tests.unit.sites.recordings import PREFIX, SCRIPT, batch, recorded, site

GRID = GridEngine()
SITE = site("gridengine")
