#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes dist/mpscnn-*.whl: built as by pip, with every library it needs inside (auditwheel), then tried out in a new
# environment that has neither a compiler nor GNUstep. Prints its size and its largest members.
#   tools/make_wheel.sh VENV PYTHON
set -eu -o pipefail

venv=$1 python=$2
work=build/wheel
rm -rf "$work" && mkdir -p "$work/raw" "$work/licenses" dist

if [ "$(uname -s)" = Darwin ]; then
    "$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation -Cbuild-dir=build/release -w dist .
else
    # What will be bundled, and the licences of the Debian packages it comes from.
    libraries=$(ldconfig -p | awk '/x86-64/ && /(libgnustep-base|libobjc|libBlocksRuntime|libgomp)\.so\.[0-9.]+ / {print $NF}' |
        sort -u | xargs -n1 ldd | awk '/=> \// {print $3}' | sort -u)
    roots=$(ldconfig -p | awk '/x86-64/ && /(libgnustep-base|libobjc|libBlocksRuntime|libgomp)\.so\.[0-9.]+ / {print $NF}' | sort -u)
    for library in $libraries $roots; do
        owner=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null || dpkg -S "$(readlink -f "$library" | sed 's,^/usr,,')") || continue
        owner=${owner%%:*}
        # The C library and GCC's are the system's own and are not bundled (libgomp is).
        case $owner in libc6 | libstdc++6 | libgcc-s1 | zlib1g) continue ;; esac
        cp "/usr/share/doc/$owner/copyright" "$work/licenses/$owner.txt"
    done
    # The packages' files name these texts instead of repeating them.
    (cd /usr/share/common-licenses && cp GPL-2 GPL-3 LGPL-2.1 LGPL-3 "$OLDPWD/$work/licenses/")
    icu=$(printf '%s\n' $libraries | grep '/libicudata\.so\.' | head -n 1)
    "$venv/bin/python" tools/slim_icu.py "$icu" "$work/slim"

    echo "== building the wheel"
    "$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation -Cbuild-dir=build/release \
        -Ccmake.define.MPSCNN_LICENSES="$PWD/$work/licenses" -w "$work/raw" .
    rm -f dist/mpscnn-*.whl
    # auditwheel looks through LD_LIBRARY_PATH first, so the small ICU data is what it takes.
    LD_LIBRARY_PATH="$PWD/$work/slim" "$venv/bin/auditwheel" repair --zip-compression-level 9 -w dist "$work"/raw/*.whl \
        2>"$work/auditwheel.log" || { cat "$work/auditwheel.log" >&2; exit 1; }
fi

wheel=$(ls -t dist/mpscnn-*.whl | head -n 1)
"$venv/bin/python" - "$wheel" <<'END'
import os, sys, zipfile

wheel = sys.argv[1]
members = sorted(zipfile.ZipFile(wheel).infolist(), key=lambda member: -member.compress_size)
size = os.path.getsize(wheel) / 1e6
print(f"{wheel}: {size:.1f} MB, {len(members)} files; the largest, in MB compressed and unpacked:")
for member in members[:8]:
    print(f"  {member.compress_size / 1e6:6.2f} {member.file_size / 1e6:7.2f}  {member.filename}")
if size > 40:
    sys.exit(f"The wheel's size ({size:.1f} MB) is more than 40 MB.")
END

echo "== trying it out"
rm -rf "$work/venv"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "$wheel"
cp tests/wheel_smoke.py "$work/"
(cd "$work" && env -i PATH="$PWD/venv/bin" HOME="$PWD" LANG=C.UTF-8 venv/bin/python wheel_smoke.py)
"$work/venv/bin/python" -m pip install --quiet "$wheel[demo]"
cp -r examples/super_resolution "$work/"
(cd "$work" && env -i PATH="$PWD/venv/bin" HOME="$PWD" LANG=C.UTF-8 venv/bin/python super_resolution/demo.py --images 20)
