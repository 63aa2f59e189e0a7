"""`python -m edgewise.compiler.shake SOURCE TARGET`."""

import sys

from . import main

main(sys.argv[1:])
