"""`python -m edgewise.shake SOURCE TARGET`."""

import sys

from . import main

sys.exit(main(sys.argv[1:]))
