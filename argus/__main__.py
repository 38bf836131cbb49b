"""`python -m argus` is the command `argus`."""

import sys

from argus.cli import main

sys.exit(main())
