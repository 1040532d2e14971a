"""python -m of the package does what the console script does."""

import sys

from .cli import main

sys.exit(main())
