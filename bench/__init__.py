# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of mpscnn and of other programs, interleaved in one run."""
