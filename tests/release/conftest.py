"""The wheel's trial installs everything anew, so it is `make test-dist`'s and not part of `make test`."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("SELFCAL_DIST") else ["test_wheel.py"]
