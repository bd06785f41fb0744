# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of mpscnn and its alternatives, interleaved in one run."""
