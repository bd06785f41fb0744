#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check Objective-C headers against the API fact base (the files FACTS in this folder).

    check_api.py INCLUDE_DIR [options]

Parses every header under INCLUDE_DIR (or only the --entry headers) with clang's
JSON AST dump and compares it with the JSON files.  Reports missing
classes, wrong superclasses, missing selectors, differing return/argument types,
missing or mistyped properties and differing enum values (also protocols, structs,
functions, typedefs and constants).  The last line of output is

    coverage: classes X/Y, selectors X/Y, properties X/Y, enum values X/Y

Exit status: 0 everything in scope is present and equal; 1 something is missing or
differs; 2 the headers could not be parsed (or bad usage).

Python 3.11 standard library + clang only; which clang: --clang, else the environment's CLANG, else clang-19.
"""

import argparse
import json
import os
import re
import sys
import tempfile

from clang_ast import run_clang
from compare import Checker

HERE = os.path.dirname(os.path.abspath(__file__))
FACTS = ("mps_api.json", "mps_image_api.json", "mps_matrix_api.json", "metal_api.json")
SECTIONS = ("classes", "protocols", "enums", "structs", "functions", "typedefs", "constants")


def load_api(paths):
    api = {k: {} for k in SECTIONS}
    api["tier2_typedefs"], api["retained_typedefs"] = set(), set()
    for p in paths:
        with open(p, encoding="utf-8") as f:
            d = json.load(f)
        for k in SECTIONS:
            api[k].update(d.get(k, {}))
        for k in ("tier2_typedefs", "retained_typedefs"):
            api[k].update(d.get(k, []))
    return api


def parse_only(values, api):
    if not values:
        return None
    names = set()
    for v in values:
        if os.path.isfile(v):
            with open(v, encoding="utf-8") as f:
                v = f.read()
        names |= {n for n in re.split(r"[\s,]+", v) if n and not n.startswith("#")}
    scopes = {"@" + e.get("scope", "") for e in api["classes"].values()}
    known = set().union(*(api[k] for k in SECTIONS))
    for n in sorted(names):
        if n not in known and n not in scopes:
            sys.stderr.write(f"check_api: --only: '{n}' is not in the fact base\n")
            sys.exit(2)
    return names


def main(argv=None):
    ap = argparse.ArgumentParser(
        description="check Objective-C headers against the API fact base",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ap.add_argument("include_dir", help="directory that would be given to the compiler with -I")
    ap.add_argument(
        "--api",
        action="append",
        metavar="JSON",
        help="fact file(s); default: those named FACTS beside this script",
    )
    ap.add_argument(
        "--entry",
        action="append",
        metavar="HEADER",
        help="header(s) to import, relative to INCLUDE_DIR; default: the umbrella headers if there, else every .h",
    )
    ap.add_argument("--all-headers", action="store_true", help="import every .h even where an umbrella header exists")
    ap.add_argument(
        "--only",
        action="append",
        metavar="CLASSLIST",
        help="names (commas or spaces), a file of names, or @scope (@seed, @support, @graph, @rnn, @nn_other)",
    )
    ap.add_argument(
        "--allow-missing", action="store_true", help="fail only on differing declarations, not on missing ones"
    )
    ap.add_argument(
        "--tier",
        type=int,
        default=1,
        choices=(1, 2),
        help="metal_api.json: 1 = minimal compute surface (default), 2 = all members",
    )
    ap.add_argument("--max-since", metavar="VERSION", help="skip declarations newer than this macOS version (10.15)")
    ap.add_argument("--skip-deprecated", action="store_true", help="leave out members that are deprecated")
    ap.add_argument(
        "--include-unavailable", action="store_true", help="also require members that the SDK marks unavailable"
    )
    ap.add_argument(
        "--strict-types",
        action="store_true",
        help="spelling must match (NSUInteger is not unsigned long, a typedef is not its target)",
    )
    ap.add_argument(
        "--strict-placement", action="store_true", help="members must be declared in the class itself, not inherited"
    )
    ap.add_argument("--strict-attrs", action="store_true", help="also compare copy/retain/weak of properties")
    ap.add_argument("--lang", default="objective-c", choices=("objective-c", "objective-c++"))
    ap.add_argument("--clang", default=os.environ.get("CLANG", "clang-19"))
    ap.add_argument("--cflags", default=[], type=lambda s: s.split(), help="further compiler flags, one string")
    ap.add_argument("--no-default-cflags", action="store_true", help="do not add the GNUstep flags")
    ap.add_argument("--no-foundation", action="store_true", help="do not import Foundation first")
    ap.add_argument("--keep-going", action="store_true", help="compare even if clang reported errors")
    ap.add_argument("--json", metavar="FILE", help="write the problems as JSON")
    ap.add_argument("-q", "--quiet", action="store_true", help="print only the entries that have problems")
    opts = ap.parse_args(argv)
    if not os.path.isdir(opts.include_dir):
        ap.error("not a directory: " + opts.include_dir)
    api = load_api(opts.api or [os.path.join(HERE, name) for name in FACTS])
    opts.only = parse_only(opts.only, api)
    with tempfile.TemporaryDirectory(prefix="check_api.") as work:
        act = run_clang(opts, work)
    ck = Checker(api, act, opts)
    ck.run()
    for line in ck.lines:
        print(line)
    if opts.json:
        with open(opts.json, "w", encoding="utf-8") as f:
            json.dump(
                {"counts": ck.count, "missing": ck.missing, "differs": ck.wrong, "problems": ck.report}, f, indent=1
            )
    c = ck.count
    print(
        "also: "
        + ", ".join(f"{k} {c[k][0]}/{c[k][1]}" for k in ("protocols", "structs", "functions", "typedefs", "constants"))
        + f"; problems: {ck.missing} missing, {ck.wrong} differ"
    )
    print(
        "coverage: "
        + ", ".join(f"{k} {c[k][0]}/{c[k][1]}" for k in ("classes", "selectors", "properties", "enum values"))
    )
    sys.stdout.flush()
    return 1 if ck.wrong or (ck.missing and not opts.allow_missing) else 0


if __name__ == "__main__":
    sys.exit(main())
