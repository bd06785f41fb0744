# SPDX-License-Identifier: Apache-2.0
"""Types of command-line arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def within(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a function that converts text to an integer between the limits, both included."""

    def integer(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{number} is less than the minimum ({minimum})")
        if maximum is not None and number > maximum:
            raise argparse.ArgumentTypeError(f"{number} is greater than the maximum ({maximum})")
        return number

    return integer
