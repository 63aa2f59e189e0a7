"""`python -m edgewise.cli`."""

import sys

from . import main

sys.exit(main())
