#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build GNUstep base for the Linux wheel: Debian's source package in the version of the installed headers, without
# unused features: ICU, XML, TLS, network services, D-Bus, dispatch, GMP, zlib. Prints the folder, which has
# lib/libgnustep-base.so.*, copyright and version; it is built once per version of GNUstep and of this script.
#   tools/make_foundation.sh FOLDER
set -eu -o pipefail

mkdir -p "$1"
root=$(cd "$1" && pwd)
version=$(dpkg-query -W -f '${source:Version}' libgnustep-base-dev)
made=$root/${version//[^A-Za-z0-9.]/-}-$(cksum <"$0" | cut -d' ' -f1)
if [ -e "$made/version" ]; then
    echo "$made"
    exit 0
fi

# Messages go to standard error, because standard output is the folder's name.
work=$(mktemp -d "$root/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$root/build.log
: >"$log"
fail() {
    tail -n 40 "$log" >&2
    echo "$1" >&2
    exit 1
}

echo "== GNUstep base $version: source package" >&2
# Debian's archives among this machine's package sources, with separate lists, so that the system's settings do not
# change and no root is needed. apt verifies the list by Debian's signature and the files by the list's checksums.
apt-get indextargets --format 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    "Created-By: Packages" "Origin: Debian" | sort -u >"$work/sources.list"
[ -s "$work/sources.list" ] || fail "apt knows no archive of Debian's. Run apt-get update as root first."
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
apt=(apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=")
(cd "$work" && "${apt[@]}" update && "${apt[@]}" source --download-only --only-source "gnustep-base=$version" &&
    dpkg-source -x gnustep-base_*.dsc source) >>"$log" 2>&1 ||
    fail "The source package gnustep-base $version could not be fetched. Newer headers may be there: apt-get install libgnustep-base-dev"

echo "== GNUstep base: configure" >&2
# Debian's own hardening flags, without paths of this machine; -Oz because nothing here is compute-bound.
flags="-fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work/source=."
export GNUSTEP_MAKEFILES=${GNUSTEP_MAKEFILES:-/usr/share/GNUstep/Makefiles}
(cd "$work/source" && ./configure --with-installation-domain=SYSTEM --disable-bfd --disable-icu --disable-xml \
    --disable-xmltest --disable-xslt --disable-tls --disable-tlstest --disable-zeroconf --disable-libdispatch \
    --disable-nsurlsession ac_cv_header_gmp_h=no ac_cv_header_zlib_h=no ac_cv_lib_kvm_kvm_getenvv=no) >>"$log" 2>&1 ||
    fail "GNUstep base could not be configured."

echo "== GNUstep base: compile" >&2
progress() {
    local done=0 all line
    all=$(find "$work/source/Source" -name '*.m' | wc -l)  # a few are not compiled on Linux
    while read -r line; do
        case $line in
        *" -c "*) done=$((done + 1)) ;;
        *) continue ;;
        esac
        if [ -t 2 ]; then printf '\r\033[K   [%d of about %d]' "$done" "$all" >&2
        elif [ $((done % 40)) = 0 ]; then echo "   [$done of about $all]" >&2; fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}
make -C "$work/source/Source" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" messages=yes doc=no debug=no OPTFLAG=-Oz CFLAGS="$flags" \
    LDFLAGS="-Wl,-z,relro -Wl,-z,now -Wl,--no-undefined" 2>&1 | tee -a "$log" | progress || fail "GNUstep base could not be compiled."

soname=$(cd "$work/source/Source/obj" && ls -d libgnustep-base.so.*.*.* | sed 's/\.[0-9]*$//')
mkdir -p "$work/made/lib"
strip --strip-unneeded -o "$work/made/lib/$soname" "$work/source/Source/obj/$soname".*
cp "$work/source/debian/copyright" "$work/made/copyright"
echo "$version" >"$work/made/version"
rm -rf "$made"
mv "$work/made" "$made"
echo "$made"
