# SPDX-License-Identifier: Apache-2.0
"""Timing of several contestants side by side: how, says mpscnn.benchmarking, which `mpscnn bench` uses too."""

from mpscnn.benchmarking import interleaved

__all__ = ["interleaved"]
