#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make the virtual environment if there is none, and install groups of pyproject.toml's [dependency-groups] into it.
#   tools/make_venv.sh PYTHON VENV [GROUP...]
set -eu

python=$1 venv=$2
shift 2

explain() {
    cat >&2 <<END

pip could not install the Python packages (no network?). They are listed in pyproject.toml under [dependency-groups]:
    $venv/bin/python -m pip install 'pip>=25.1'
END
    [ -z "$groups" ] || echo "    $venv/bin/python -m pip install$groups" >&2
    exit 1
}

# Print pip's warnings, which are about package sources, only if the installation fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    "$venv/bin/python" -m pip install --quiet "$@" 2>"$log" || {
        cat "$log" >&2
        explain
    }
}

groups=""
for group in "$@"; do groups="$groups --group $group"; done

if [ ! -x "$venv/bin/python" ]; then
    echo "== virtual environment $venv ($("$python" --version))"
    "$python" -m venv "$venv"
fi
# Debian 12's pip does not support --group.
"$venv/bin/python" -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' ||
    install 'pip>=25.1'
[ $# -gt 0 ] || exit 0

echo "== Python packages: $*"
# shellcheck disable=SC2086  # one word per option
install $groups
