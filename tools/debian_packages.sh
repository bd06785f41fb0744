#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the missing Debian packages that the build needs. Print nothing if none is missing.
#   tools/debian_packages.sh PYTHON [PACKAGE...]     PACKAGE: additional packages
# Called by the Makefile. Without apt or network it prints the packages and the command that installs them.
set -u

python=$1
shift
wanted="clang-19 libobjc-12-dev libgnustep-base-dev libblocksruntime-dev g++ $*"

# Debian has separate packages for Python's venv and headers. Other Pythons include both.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1
"$python" -c 'import ensurepip, venv' 2>/dev/null || wanted="$wanted python$version-venv"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    wanted="$wanted python$version-dev"

if ! command -v dpkg >/dev/null 2>&1; then
    # Not Debian: accept equivalent tools.
    if (command -v clang++-19 || command -v clang++) >/dev/null 2>&1 && command -v g++ >/dev/null 2>&1 &&
        [ -e /usr/include/GNUstep/Foundation/Foundation.h ] && ls /usr/lib/gcc/*/*/include/objc/objc.h >/dev/null 2>&1 &&
        ls /usr/include/Block.h >/dev/null 2>&1; then
        exit 0
    fi
    cat >&2 <<END
This machine has no dpkg. The build needs clang 19 or newer, g++, GCC's Objective-C runtime (libobjc with headers),
GNUstep base (headers and library) and the blocks runtime. On Debian 12 they are the packages
    $wanted
END
    exit 1
fi

missing=""
for package in $wanted; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
tell() {
    cat >&2 <<END

$1
Missing packages:$missing
Install them as root, then run make again:
    apt-get update && apt-get install$missing
END
    exit 1
}

command -v apt-get >/dev/null 2>&1 || tell "There is no apt-get here."
[ -z "$sudo" ] || command -v sudo >/dev/null 2>&1 || 
    tell "Installing packages needs root, and there is no sudo."

echo "== Debian packages:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    "$@" >"$log" 2>&1 </dev/null || {
        tail -n 15 "$log" >&2
        return 1
    }
}
environment="env DEBIAN_FRONTEND=noninteractive LC_ALL=C"
# Continue after a failed update: the package lists may be recent enough.
run $sudo $environment apt-get -q update || echo "   apt-get update failed (no network?); trying with the lists at hand" >&2
run $sudo $environment apt-get -q -y --no-install-recommends install $missing || tell "apt-get could not install them."
