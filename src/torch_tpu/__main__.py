"""``python -m torch_tpu``: what is installed, what it runs on, and whether it works."""

import sys

from torch_tpu._report import main

sys.exit(main(sys.argv[1:]))
