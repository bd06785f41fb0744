#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print the path of a Python that can build the package (3.10 or newer); Debian 12's python3.11 is preferred.
for candidate in python3.11 /usr/bin/python3.11 python3 python3.12 python3.13 python3.14 python3.10; do
    path=$("$candidate" -c 'import sys; print(sys.executable) if sys.version_info >= (3, 10) else sys.exit(1)' 2>/dev/null) &&
        { echo "$path"; exit 0; }
done
echo "No Python 3.10 or newer was found (Debian 12: apt-get install python3.11)." >&2
exit 1
