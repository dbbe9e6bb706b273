"""Run the command line: ``python -m tokcache``."""

import sys

from tokcache.cli import main

if __name__ == "__main__":
    sys.exit(main())
