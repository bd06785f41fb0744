# SPDX-License-Identifier: Apache-2.0
"""Networks: the graph, passes, calls, streams, files."""
