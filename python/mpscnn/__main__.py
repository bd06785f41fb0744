# SPDX-License-Identifier: Apache-2.0
"""Run the command ``mpscnn`` as ``python -m mpscnn``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
