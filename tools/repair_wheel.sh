#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bundle the libraries that a Linux wheel needs, and check the result.
#   tools/repair_wheel.sh BIN FOUNDATION WHEEL FOLDER
# BIN: folder of auditwheel and patchelf; FOUNDATION: folder printed by tools/make_foundation.sh.
set -eu

bin=$(cd "$1" && pwd) foundation=$(cd "$2" && pwd) wheel=$3 folder=$4
tag=$(sed -n 's/^TAG = "\(.*\)"$/\1/p' "$(dirname "$0")/check_wheel.py")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# auditwheel searches LD_LIBRARY_PATH first, so it takes this GNUstep base.
env PATH="$bin:$PATH" LD_LIBRARY_PATH="$foundation/lib" "$bin/auditwheel" repair --plat "$tag" --only-plat \
    -w "$folder" "$wheel" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
made=$(sed -n 's/^.*Fixed-up wheel written to //p' "$log")
advzip -z -q -2 "$made"  # the same format, 4 % smaller than with zlib
"$bin/python" "$(dirname "$0")/check_wheel.py" "$made"
