# SPDX-License-Identifier: Apache-2.0
"""Reordering of weights, and arrays that can always be shared with a device.

The functions are the extension's own: a Python layer around them would take longer than a small tensor does.
"""

from ._core import empty, reorder, reorder_linear

__all__ = ["empty", "reorder", "reorder_linear"]
