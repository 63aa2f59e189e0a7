"""`python -m edgewise.shake SOURCE TARGET`."""

import sys

from . import main

main(sys.argv[1:])
