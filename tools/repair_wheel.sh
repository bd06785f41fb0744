#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts the libraries that a Linux wheel needs into it, and checks the result.
#   tools/repair_wheel.sh BIN FOUNDATION WHEEL FOLDER
# BIN: where auditwheel and patchelf are; FOUNDATION: as tools/make_foundation.sh names it.
set -eu

bin=$(cd "$1" && pwd) foundation=$(cd "$2" && pwd) wheel=$3 folder=$4
tag=$(sed -n 's/^TAG = "\(.*\)"$/\1/p' "$(dirname "$0")/check_wheel.py")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# auditwheel looks through LD_LIBRARY_PATH first, so this GNUstep base is what it takes.
env PATH="$bin:$PATH" LD_LIBRARY_PATH="$foundation/lib" "$bin/auditwheel" repair --plat "$tag" --only-plat \
    -w "$folder" "$wheel" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
made=$(sed -n 's/^.*Fixed-up wheel written to //p' "$log")
advzip -z -q -2 "$made"  # the same format, 4 % smaller than zlib makes it
"$bin/python" "$(dirname "$0")/check_wheel.py" "$made"
