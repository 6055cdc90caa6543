"""Ray is an extra that `make setup` does not install: these tests belong to `make test-ray`."""

import os

collect_ignore_glob = [] if os.environ.get("SELFCAL_RAY") else ["test_*.py"]
