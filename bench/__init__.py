# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ours beside what people would use otherwise, in one run."""
