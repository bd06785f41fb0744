#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print what `make demo` or `make test` will do, and about how much time and disk it needs.
#   tools/announce.sh demo|test VENV JOBS
target=$1 venv=$2 jobs=$3
stamps=$venv/stamps
seconds=0 megabytes=0

# step SECONDS MEGABYTES TEXT: on a machine with two cores and a fast network
step() {
    [ "$seconds" -gt 0 ] || echo "make $target will"
    seconds=$((seconds + $1)) megabytes=$((megabytes + $2))
    echo "  - $3"
}
built() { [ -e "$stamps/$1" ]; }

[ "$jobs" -gt 0 ] 2>/dev/null || jobs=1
built system || { [ "$(uname -s)" = Darwin ] || step 30 750 "install the Debian packages that are missing, with apt"; }
built group-build && built "group-$target" || step 50 2500 "install Python packages into $venv, PyTorch for the CPU among them"
built package || step $((1000 / jobs)) 100 "compile the package"
if [ "$target" = test ]; then
    built programs || step $((400 / jobs)) 200 "compile the native tests"
    step $((3000 / jobs)) 0 "run all tests"
fi
[ "$seconds" -gt 0 ] || exit 0
disk=""
[ "$megabytes" -eq 0 ] || disk=" and $megabytes MB of disk"
echo "It takes about $(((seconds + 59) / 60)) minutes$disk. Compilers' output is in build/*.log."
