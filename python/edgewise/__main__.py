"""`python -m edgewise`: the command line."""

import sys

from .host.cli import main

sys.exit(main())
