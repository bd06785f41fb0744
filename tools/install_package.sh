#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build the package with pip and install it into the environment. Object files stay in build/release for incremental
# builds. Shows progress; the whole output is in build/install.log.
#   tools/install_package.sh VENV
set -u -o pipefail

venv=$1
log=build/install.log
mkdir -p build
echo "== building mpscnn (log: $log)"
started=$SECONDS

progress() {  # ninja's lines only, rewritten in place on a terminal
    if [ -t 1 ]; then
        sed -un 's/^ *\(\[[0-9]*\/[0-9]*\]\) .*[ /]\([^ /]*\)$/\r\x1b[K   \1 \2/p' | tr -d '\n'
        printf '\r\033[K'
    else
        sed -un 's/^ *\(\[[0-9]*\/[0-9]*\]\) .*[ /]\([^ /]*\)$/   \1 \2/p'
    fi
}

"$venv/bin/python" -m pip install --verbose --no-deps --no-build-isolation --force-reinstall \
    -Cbuild-dir=build/release -Cbuild.verbose=false -Ccmake.define.MPSCNN_BUILD_TESTS=ON \
    -Ccmake.define.MPSCNN_CUDA_HOST=ON \
    "-Cbuild.targets=_core;package" . 2>&1 | tee "$log" | progress
if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    echo "The build failed:" >&2
    grep -vE '^ *\[[0-9]+/[0-9]+\] (Building|Linking|Generating)|^ *(--|Running|Preparing|Created|Removed)' "$log" | tail -n 60 >&2
    exit 1
fi
echo "   done in $((SECONDS - started)) s"
