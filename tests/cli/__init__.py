# SPDX-License-Identifier: Apache-2.0
"""The command line, on small models."""
