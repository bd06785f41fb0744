#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check Objective-C headers against the API fact base (mps_api.json, mps_image_api.json, metal_api.json).

    check_api.py INCLUDE_DIR [options]

Parses every header under INCLUDE_DIR (or only the --entry headers) with clang's
JSON AST dump and compares what it finds with the JSON files.  Reports missing
classes, wrong superclasses, missing selectors, differing return/argument types,
missing or mistyped properties and differing enum values (also protocols, structs,
functions, typedefs and constants).  The last line of output is

    coverage: classes X/Y, selectors X/Y, properties X/Y, enum values X/Y

Exit status: 0 everything in scope is present and equal; 1 something is missing or
differs; 2 the headers could not be parsed (or bad usage).

Python 3.11 standard library + clang only; which clang: --clang, else the environment's CLANG, else clang-19.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FACTS = ("mps_api.json", "mps_image_api.json", "metal_api.json")

# GNU-family runtimes (-fobjc-runtime=gcc / gnustep-*) make clang 19's JSON dumper crash on
# any method that is declared in a protocol, so the AST is produced for the macosx runtime.
# Nothing is compiled or linked, so the choice does not matter for declarations.
DEFAULT_CFLAGS = [
    "-fobjc-runtime=macosx-10.15",
    "-fblocks",
    "-fconstant-string-class=NSConstantString",
    "-DGNUSTEP",
    "-DGNUSTEP_BASE_LIBRARY=1",
    "-DAPI_CHECK=1",
    "-I/usr/include/GNUstep",
]


def objc_include_dir():
    """The newest GCC's folder with objc/objc.h (libobjc-NN-dev)."""
    found = glob.glob("/usr/lib/gcc/*/*/include/objc/objc.h")
    if not found:
        sys.stderr.write("check_api: no objc/objc.h below /usr/lib/gcc (Debian: libobjc-12-dev)\n")
        sys.exit(2)
    found.sort(key=lambda p: [int(x) for x in re.findall(r"\d+", p.split("/")[5])])
    return os.path.dirname(os.path.dirname(found[-1]))


# ----------------------------------------------------------------------------- types

DROP = {
    "_Nonnull",
    "_Nullable",
    "_Nullable_result",
    "_Null_unspecified",
    "__nonnull",
    "__nullable",
    "__null_unspecified",
    "nonnull",
    "nullable",
    "__strong",
    "__weak",
    "__autoreleasing",
    "__unsafe_unretained",
    "__kindof",
    "struct",
    "enum",
    "union",
    "volatile",
    "restrict",
    "__restrict",
    "register",
    "in",
    "out",
    "inout",
    "bycopy",
    "byref",
    "oneway",
}
INTWORDS = {"unsigned", "signed", "long", "short", "int", "char"}
SCALAR = {
    "NSUInteger": "u64",
    "size_t": "u64",
    "uint64_t": "u64",
    "uintptr_t": "u64",
    "NSInteger": "s64",
    "ssize_t": "s64",
    "int64_t": "s64",
    "intptr_t": "s64",
    "ptrdiff_t": "s64",
    "uint32_t": "u32",
    "UInt32": "u32",
    "int32_t": "s32",
    "SInt32": "s32",
    "uint16_t": "u16",
    "UInt16": "u16",
    "int16_t": "s16",
    "SInt16": "s16",
    "uint8_t": "u8",
    "UInt8": "u8",
    "int8_t": "s8",
    "SInt8": "s8",
    "bool": "bool",
    "_Bool": "bool",
    "BOOL": "BOOL",
    "float": "f32",
    "double": "f64",
    "CGFloat": "f64",
    "NSTimeInterval": "f64",
    "CFTimeInterval": "f64",
}
SIZES = {"u64": 64, "s64": 64, "u32": 32, "s32": 32, "u16": 16, "s16": 16, "u8": 8, "s8": 8}
TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|\.\.\.|[<>*^()\[\],&]")


def int_name(words):
    unsigned = "unsigned" in words
    longs = words.count("long")
    if "char" in words:
        size = 8
        if not unsigned and "signed" not in words:
            return "char"
    elif "short" in words:
        size = 16
    elif longs:
        size = 64
    else:
        size = 32
    return ("u" if unsigned else "s") + str(size)


def tokens(text):
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text)
    text = re.sub(r"\b(?:NS_RETURNS_RETAINED|NS_NOESCAPE)\b", " ", text)
    return [t for t in TOKEN.findall(text) if t not in DROP]


def fold_ints(toks):
    out, words = [], []
    for t in [*toks, None]:
        if t in INTWORDS:
            words.append(t)
            continue
        if words:
            out.append("#" + int_name(words))
            words = []
        if t is not None:
            out.append(t)
    return out


def fix_const(toks):
    """Move a const that precedes the first top-level '*' to the front; drop top-level const."""
    if "^" in toks:
        return toks
    depth, star = 0, None
    for i, t in enumerate(toks):
        if t == "<":
            depth += 1
        elif t == ">":
            depth -= 1
        elif t == "*" and depth == 0:
            star = i
            break
    if star is None:
        return [t for t in toks if t != "const"] if "<" not in toks else toks
    depth, head, has = 0, [], False
    for t in toks[:star]:
        if t == "<":
            depth += 1
        elif t == ">":
            depth -= 1
        if t == "const" and depth == 0:
            has = True
        else:
            head.append(t)
    tail = toks[star:]
    while tail and tail[-1] == "const":
        tail.pop()
    return (["const"] if has else []) + head + tail


def canon(text, table=None, strict=False):
    """Canonical token string of a type; with a typedef table aliases are resolved."""
    toks = fold_ints(tokens(text))
    if table is not None:
        for _ in range(12):
            out, changed = [], False
            for t in toks:
                if t not in SCALAR and t in table:
                    sub = fold_ints(tokens(table[t]))
                    if sub != [t]:
                        out += sub
                        changed = True
                        continue
                out.append(t)
            toks = out
            if not changed:
                break
        toks = [("#" + SCALAR[t]) if t in SCALAR and SCALAR[t] != "BOOL" else t for t in toks]
    else:
        toks = ["bool" if t == "_Bool" else t for t in toks]
    return " ".join(fix_const(toks))


class Types:
    def __init__(self, expected_typedefs, actual_typedefs, strict):
        self.exp = dict(actual_typedefs)
        self.exp.update(expected_typedefs)
        self.act = actual_typedefs
        self.strict = strict

    def same(self, want, have, initlike=False):
        if canon(want) == canon(have):
            return True
        if self.strict:
            return False
        if initlike and {canon(want), canon(have)} == {"id", "instancetype"}:
            return True
        return canon(want, self.exp) == canon(have, self.act)


# ----------------------------------------------------------------------------- clang AST


class Actual:
    def __init__(self):
        self.classes = {}  # name -> {super, protocols, methods, props}
        self.protocols = {}
        self.enums = {}  # name -> {type, cases}
        self.constants = {}  # enum constant -> (value, enum)
        self.records = {}  # id -> fields
        self.structs = {}
        self.functions = {}
        self.typedefs = {}
        self.typedef_names = set()
        self.vars = {}
        self.macros = {}
        self.enum_ids = {}


WANTED = {
    "ObjCInterfaceDecl",
    "ObjCCategoryDecl",
    "ObjCProtocolDecl",
    "EnumDecl",
    "TypedefDecl",
    "RecordDecl",
    "CXXRecordDecl",
    "FunctionDecl",
    "VarDecl",
    "LinkageSpecDecl",
}


def stream_top_level(pipe):
    """Yield (decl, file at its start) for the wanted top-level declarations."""
    buf, kind, cur_file, start_file, prev = None, None, None, None, ""
    for line in pipe:
        line = line.rstrip("\n")
        if '"file": ' in line and "includedFrom" not in prev:
            m = re.search(r'"file": ("(?:[^"\\]|\\.)*")', line)
            if m:
                cur_file = json.loads(m.group(1))
        prev = line
        if buf is None:
            if line == "    {":
                buf, kind, start_file = [line], None, cur_file
            continue
        buf.append(line)
        if kind is None and line.startswith('      "kind": '):
            kind = line.split('"')[3]
        if line in ("    }", "    },"):
            if kind in WANTED:
                yield json.loads("\n".join(buf).rstrip(",")), start_file
            buf = None


def loc_file_offset(loc, cur):
    if "expansionLoc" in loc:
        # order in the dump: spellingLoc, then expansionLoc
        sp = loc.get("spellingLoc", {})
        cur = sp.get("file", cur)
        loc = loc["expansionLoc"]
    return loc.get("file", cur), loc.get("offset")


_text_cache = {}


def blanked(path):
    if path not in _text_cache:
        try:
            with open(path, "rb") as f:
                data = f.read().decode("latin-1")
        except OSError:
            data = ""
        pat = r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"'
        _text_cache[path] = re.sub(pat, lambda m: re.sub(r"[^\n]", " ", m.group(0)), data, flags=re.S)
    return _text_cache[path]


def is_optional(path, begin, offset):
    if not path or begin is None or offset is None:
        return False
    found = re.findall(r"@(optional|required)\b", blanked(path)[begin:offset])
    return bool(found) and found[-1] == "optional"


def method_of(node):
    args, attrs = [], []
    for x in node.get("inner", []):
        if x.get("kind") == "ParmVarDecl":
            args.append((x.get("name", ""), x["type"]["qualType"]))
        elif x.get("kind", "").endswith("Attr"):
            attrs.append(x["kind"])
    return {
        "returns": node["returnType"]["qualType"],
        "args": args,
        "implicit": bool(node.get("isImplicit")),
        "attrs": attrs,
        "variadic": bool(node.get("variadic")),
    }


def add_container(target, node, start_file, protocol=False):
    for p in node.get("protocols", []):
        target["protocols"].add(p["name"])
    cur, begin = start_file, None
    if protocol:
        cur, begin = loc_file_offset(node.get("loc", {}), cur)
        for part in ("begin", "end"):
            cur, _ = loc_file_offset(node.get("range", {}).get(part, {}), cur)
    for x in node.get("inner", []):
        k = x.get("kind")
        opt = False
        if protocol and k in ("ObjCMethodDecl", "ObjCPropertyDecl"):
            f, off = loc_file_offset(x.get("loc", {}), cur)
            opt = is_optional(f, begin, off)
            if f:
                cur = f
        if k == "ObjCMethodDecl":
            key = (not x.get("instance", False), x["name"])
            m = method_of(x)
            m["optional"] = opt
            old = target["methods"].get(key)
            if old is None or (old["implicit"] and not m["implicit"]):
                target["methods"][key] = m
        elif k == "ObjCPropertyDecl":
            target["props"][x["name"]] = {
                "type": x["type"]["qualType"],
                "readonly": bool(x.get("readonly")) and not x.get("readwrite"),
                "getter": (x.get("getter") or {}).get("name"),
                "setter": (x.get("setter") or {}).get("name"),
                "class": bool(x.get("class")),
                "optional": x.get("control") == "optional",
                "attrs": {a for a in ("copy", "retain", "strong", "weak", "assign", "nonatomic", "atomic") if x.get(a)},
            }


def find_const(node):
    if "value" in node and node.get("kind") == "ConstantExpr":
        return node["value"]
    for x in node.get("inner", []):
        v = find_const(x)
        if v is not None:
            return v
    return None


def find_tag(node):
    for key in ("ownedTagDecl", "decl"):
        d = node.get(key)
        if d and d.get("kind") in ("RecordDecl", "CXXRecordDecl", "EnumDecl"):
            return d
    for x in node.get("inner", []):
        d = find_tag(x)
        if d:
            return d
    return None


def fields_of(node):
    return [(x.get("name", ""), x["type"]["qualType"]) for x in node.get("inner", []) if x.get("kind") == "FieldDecl"]


def collect(act, node, start_file):
    k = node.get("kind")
    if k == "LinkageSpecDecl":
        for x in node.get("inner", []):
            collect(act, x, start_file)
    elif k == "ObjCInterfaceDecl":
        sup = (node.get("super") or {}).get("name")
        c = act.classes.setdefault(
            node["name"], {"super": None, "protocols": set(), "methods": {}, "props": {}, "defined": False}
        )
        if sup:
            c["super"], c["defined"] = sup, True
        if node.get("inner"):
            c["defined"] = True
        add_container(c, node, start_file)
    elif k == "ObjCCategoryDecl":
        n = (node.get("interface") or {}).get("name")
        if n:
            c = act.classes.setdefault(
                n, {"super": None, "protocols": set(), "methods": {}, "props": {}, "defined": False}
            )
            add_container(c, node, start_file)
    elif k == "ObjCProtocolDecl":
        p = act.protocols.setdefault(node["name"], {"protocols": set(), "methods": {}, "props": {}, "defined": False})
        if node.get("inner") or node.get("protocols"):
            p["defined"] = True
        add_container(p, node, start_file, protocol=True)
    elif k == "EnumDecl":
        cases, prev = {}, -1
        for x in node.get("inner", []):
            if x.get("kind") != "EnumConstantDecl":
                continue
            v = find_const(x)
            prev = int(v) if v is not None else prev + 1
            cases[x["name"]] = prev
            act.constants[x["name"]] = (prev, node.get("name") or node["id"])
        und = (node.get("fixedUnderlyingType") or {}).get("qualType")
        act.enum_ids[node["id"]] = {"type": und, "cases": cases}
        if node.get("name"):
            e = act.enums.setdefault(node["name"], {"type": None, "cases": {}})
            e["cases"].update(cases)
            e["type"] = und or e["type"]
    elif k in ("RecordDecl", "CXXRecordDecl"):
        if node.get("completeDefinition"):
            act.records[node["id"]] = fields_of(node)
            if node.get("name"):
                act.structs[node["name"]] = act.records[node["id"]]
    elif k == "TypedefDecl":
        name = node["name"]
        act.typedef_names.add(name)
        tag = (
            find_tag({"inner": node.get("inner", [])})
            if re.match(r"^(?:struct|enum|union)?\s*\w*(?:\(unnamed.*)?$", node["type"]["qualType"])
            else None
        )
        if tag and tag["kind"] == "EnumDecl":
            src = act.enum_ids.get(tag["id"]) or act.enums.get(tag.get("name", ""))
            e = act.enums.setdefault(name, {"type": None, "cases": {}})
            if src:
                e["cases"].update(src["cases"])
                e["type"] = e["type"] or src["type"]
                for c in src["cases"]:
                    act.constants[c] = (src["cases"][c], name)
            if tag.get("name") and tag["name"] != name:
                act.typedefs[name] = tag["name"]
        elif tag:
            f = act.records.get(tag["id"])
            if f is None and tag.get("name"):
                f = act.structs.get(tag["name"])
            if f is not None:
                act.structs[name] = f
            base = re.sub(r"^(?:struct|union)\s+", "", node["type"]["qualType"])
            if re.fullmatch(r"[A-Za-z_]\w*", base) and base != name:
                act.typedefs[name] = base
        else:
            act.typedefs[name] = node["type"]["qualType"]
    elif k == "FunctionDecl":
        args = [
            (x.get("name", ""), x["type"]["qualType"]) for x in node.get("inner", []) if x.get("kind") == "ParmVarDecl"
        ]
        q = node["type"]["qualType"]
        depth = 0
        for i in range(len(q) - 1, -1, -1):
            if q[i] == ")":
                depth += 1
            elif q[i] == "(":
                depth -= 1
                if depth == 0:
                    break
        act.functions[node["name"]] = {"returns": q[:i].strip(), "args": args}
    elif k == "VarDecl":
        act.vars[node["name"]] = node["type"]["qualType"]


def run_clang(opts, workdir):
    inc = os.path.abspath(opts.include_dir)
    shim = os.path.join(workdir, "shim", "objc")
    os.makedirs(shim)
    with open(os.path.join(shim, "blocks_runtime.h"), "w") as f:
        f.write("#include <Block.h>\n")
    if opts.entry:
        entries = opts.entry
    else:
        entries = []
        for umbrella in ("Metal/Metal.h", "MetalPerformanceShaders/MetalPerformanceShaders.h"):
            if os.path.exists(os.path.join(inc, umbrella)):
                entries.append(umbrella)
        if not entries or opts.all_headers:
            entries = []
            for root, dirs, files in os.walk(inc):
                dirs.sort()
                entries += [os.path.relpath(os.path.join(root, n), inc) for n in sorted(files) if n.endswith(".h")]
    if not entries:
        sys.stderr.write(f"check_api: no headers found under {inc}\n")
        sys.exit(2)
    ext = ".mm" if "++" in opts.lang else ".m"
    tu = os.path.join(workdir, "tu" + ext)
    with open(tu, "w") as f:
        if not opts.no_foundation:
            f.write("#import <Foundation/Foundation.h>\n")
        for e in entries:
            f.write(f'#import "{e}"\n')
    flags = ["-x", opts.lang]
    if not opts.no_default_cflags:
        flags += [*DEFAULT_CFLAGS, "-I" + objc_include_dir()]
    if not os.path.exists(os.path.join(inc, "objc", "blocks_runtime.h")):
        flags.append("-I" + os.path.join(workdir, "shim"))
    flags += ["-I" + inc, "-F" + inc, *opts.cflags]
    base = [opts.clang, *flags]
    act = Actual()
    errfile = os.path.join(workdir, "err.txt")
    with open(errfile, "w") as err:
        p = subprocess.Popen(
            [*base, "-w", "-fsyntax-only", "-Xclang", "-ast-dump=json", tu],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        for node, start in stream_top_level(p.stdout):
            collect(act, node, start)
        rc = p.wait()
    if rc != 0:
        with open(errfile) as f:
            raw = f.read().splitlines()
        lines = [x for i, line in enumerate(raw) if "error:" in line for x in raw[i : i + 2]] or raw
        sys.stderr.write(f"check_api: clang failed (status {rc}){', first errors:' if lines else ''}\n")
        for line in lines[:15]:
            sys.stderr.write("  " + line + "\n")
        if rc < 0 or rc > 1 or not opts.keep_going:
            sys.exit(2)
    r = subprocess.run([*base, "-w", "-E", "-dM", tu], capture_output=True, text=True)
    for m in re.finditer(r"^#define (\w+) (.+)$", r.stdout, re.M):
        act.macros[m.group(1)] = m.group(2)
    return act


# ----------------------------------------------------------------------------- comparison


def vkey(v):
    return tuple(int(x) for x in v.split("."))


class Checker:
    def __init__(self, api, act, opts):
        self.api, self.act, self.o = api, act, opts
        self.t = Types(api["typedefs"], act.typedefs, opts.strict_types)
        self.count = {
            k: [0, 0]
            for k in (
                "classes",
                "selectors",
                "properties",
                "enum values",
                "protocols",
                "structs",
                "functions",
                "typedefs",
                "constants",
            )
        }
        self.missing = self.wrong = 0
        self.lines, self.report = [], []

    # -- scope
    def wanted(self, name, e):
        o = self.o
        if o.only is not None and name not in o.only and "@" + e.get("scope", "") not in o.only:
            return False
        if e.get("tier", 1) > o.tier:
            return False
        s = e.get("since_macos")
        return not (o.max_since and s and vkey(s) > vkey(o.max_since))

    def member_wanted(self, m):
        o = self.o
        if m.get("unavailable") and not o.include_unavailable:
            return False
        if m.get("tier", 1) > o.tier:
            return False
        if m.get("deprecated") and o.skip_deprecated:
            return False
        s = m.get("since_macos")
        return not (o.max_since and s and vkey(s) > vkey(o.max_since))

    def tally(self, what, ok):
        self.count[what][1] += 1
        if ok:
            self.count[what][0] += 1

    def problem(self, out, kind, text, owner):
        if kind == "missing":
            self.missing += 1
        else:
            self.wrong += 1
        out.append(f"{kind}: {text}")
        self.report.append({"owner": owner, "kind": kind, "text": text})

    # -- lookups through inheritance
    def protocol_closure(self, names):
        seen, todo = set(), list(names)
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            p = self.act.protocols.get(n)
            if p:
                todo += p["protocols"]
        return seen

    def ancestry(self, name):
        out, seen = [], set()
        while name and name not in seen:
            seen.add(name)
            c = self.act.classes.get(name)
            if not c:
                out.append(name)
                break
            out.append(name)
            name = c["super"]
        return out

    def holders(self, name, is_proto):
        """Containers to search, nearest first: [(label, container)]"""
        res = []
        if is_proto:
            for n in [name, *sorted(self.protocol_closure([name]) - {name})]:
                if n in self.act.protocols:
                    res.append((n, self.act.protocols[n]))
            return res
        for n in self.ancestry(name):
            c = self.act.classes.get(n)
            if c:
                res.append((n, c))
        for n in self.ancestry(name):
            c = self.act.classes.get(n)
            if c:
                for p in sorted(self.protocol_closure(c["protocols"])):
                    if p in self.act.protocols:
                        res.append((p, self.act.protocols[p]))
        return res

    def find(self, holders, table, key):
        if self.o.strict_placement:
            holders = holders[:1]
        for label, c in holders:
            if key in c[table]:
                return label, c[table][key]
        return None, None

    # -- members
    def check_members(self, name, e, is_proto, out):
        holders = self.holders(name, is_proto)
        sel = [0, 0]
        prop = [0, 0]
        for m in e["methods"]:
            if "accessor_of" in m or not self.member_wanted(m):
                continue
            key = (m["class_method"], m["selector"])
            sign = "+" if m["class_method"] else "-"
            label, have = self.find(holders, "methods", key)
            sel[1] += 1
            if have is None:
                other = self.find(holders, "methods", (not key[0], key[1]))[1]
                hint = f" (declared as {'instance' if key[0] else 'class'} method)" if other else ""
                self.problem(out, "missing", "selector {}{}{}".format(sign, m["selector"], hint), name)
                self.tally("selectors", False)
                continue
            bad = []
            initlike = re.match(r"_*(init|new|alloc|copy|mutableCopy)(?![a-z])", m["selector"]) is not None
            if not self.t.same(m["returns"], have["returns"], initlike):
                bad.append("return type is '{}', expected '{}'".format(have["returns"], m["returns"]))
            for i, a in enumerate(m["args"]):
                if i < len(have["args"]) and not self.t.same(a["type"], have["args"][i][1]):
                    bad.append(f"argument {i + 1} ({a['name']}) is '{have['args'][i][1]}', expected '{a['type']}'")
            if bool(m.get("variadic")) != have["variadic"]:
                bad.append("variadic is {}".format(have["variadic"]))
            if is_proto and label == name and m.get("optional") != have["optional"]:
                bad.append(
                    "is @%s, expected @%s"
                    % (("optional", "required") if have["optional"] else ("required", "optional"))
                )
            for b in bad:
                self.problem(out, "differs", "{}{}: {}".format(sign, m["selector"], b), name)
            if not bad:
                sel[0] += 1
            self.tally("selectors", not bad)
        for p in e["properties"]:
            if not self.member_wanted(p):
                continue
            prop[1] += 1
            label, have = self.find(holders, "props", p["name"])
            if have is None:
                getter = p["getter"] or p["name"]
                hint = (
                    " (declared as a method)"
                    if self.find(holders, "methods", (bool(p.get("class_property")), getter))[1]
                    else ""
                )
                self.problem(out, "missing", "property {}{}".format(p["name"], hint), name)
                self.tally("properties", False)
                continue
            bad = []
            if not self.t.same(p["type"], have["type"]):
                bad.append("type is '{}', expected '{}'".format(have["type"], p["type"]))
            if p["readonly"] != have["readonly"]:
                # a readonly base redeclared readwrite further up still counts
                bad.append(
                    "is %s, expected %s"
                    % (("readonly", "readwrite") if have["readonly"] else ("readwrite", "readonly"))
                )
            want_g = p["getter"] or p["name"]
            if (have["getter"] or p["name"]) != want_g:
                bad.append("getter is '{}', expected '{}'".format(have["getter"] or p["name"], want_g))
            if not p["readonly"] and p.get("setter") and have["setter"] != p["setter"]:
                bad.append("setter is '{}', expected '{}'".format(have["setter"], p["setter"]))
            if bool(p.get("class_property")) != have["class"]:
                bad.append("class property is {}".format(have["class"]))
            if is_proto and label == name and bool(p.get("optional")) != have["optional"]:
                bad.append(
                    "is @%s, expected @%s"
                    % (("optional", "required") if have["optional"] else ("required", "optional"))
                )
            if self.o.strict_attrs:
                want = {"retain" if a == "strong" else a for a in p.get("attributes", [])} & {"copy", "retain", "weak"}
                got = {"retain" if a == "strong" else a for a in have["attrs"]} & {"copy", "retain", "weak"}
                if want != got:
                    bad.append(f"ownership is {sorted(got)}, expected {sorted(want)}")
            for b in bad:
                self.problem(out, "differs", "property {}: {}".format(p["name"], b), name)
            if not bad:
                prop[0] += 1
            self.tally("properties", not bad)
        return sel, prop

    def count_absent(self, e):
        for m in e["methods"]:
            if "accessor_of" not in m and self.member_wanted(m):
                self.tally("selectors", False)
        for p in e["properties"]:
            if self.member_wanted(p):
                self.tally("properties", False)

    def emit(self, head, out):
        if out or not self.o.quiet:
            self.lines.append(f"{head}: {len(out)} problem{'' if len(out) == 1 else 's'}" if out else f"{head}: OK")
        for line in out:
            self.lines.append("    " + line)

    def run(self):
        act, api = self.act, self.api
        for name, e in api["classes"].items():
            if not self.wanted(name, e):
                continue
            have, out = act.classes.get(name), []
            if have is None or not have["defined"]:
                self.problem(out, "missing", "class", name)
                self.tally("classes", False)
                self.count_absent(e)
                self.emit("class " + name, out)
                continue
            ok = have["super"] == e["super"]
            if not ok:
                extra = " (it is an ancestor)" if e["super"] in self.ancestry(name)[1:] else ""
                self.problem(
                    out, "differs", "superclass is '{}', expected '{}'{}".format(have["super"], e["super"], extra), name
                )
            self.tally("classes", ok)
            conf = set()
            for n in self.ancestry(name):
                if n in act.classes:
                    conf |= self.protocol_closure(act.classes[n]["protocols"])
            for p in e["protocols"]:
                if p not in conf and self.api["protocols"].get(p, {}).get("tier", 1) <= self.o.tier:
                    self.problem(out, "missing", f"conformance to protocol {p}", name)
            sel, prop = self.check_members(name, e, False, out)
            self.emit(f"class {name} (selectors {sel[0]}/{sel[1]}, properties {prop[0]}/{prop[1]})", out)
        for name, e in api["protocols"].items():
            if not self.wanted(name, e):
                continue
            have, out = act.protocols.get(name), []
            if have is None or not (have["defined"] or not (e["methods"] or e["properties"])):
                self.problem(out, "missing", "protocol", name)
                self.tally("protocols", False)
                self.count_absent(e)
                self.emit("protocol " + name, out)
                continue
            self.tally("protocols", True)
            conf = self.protocol_closure(have["protocols"])
            for p in e["protocols"]:
                if p not in conf and self.api["protocols"].get(p, {}).get("tier", 1) <= self.o.tier:
                    self.problem(out, "missing", f"adoption of protocol {p}", name)
            sel, prop = self.check_members(name, e, True, out)
            self.emit(f"protocol {name} (selectors {sel[0]}/{sel[1]}, properties {prop[0]}/{prop[1]})", out)
        for name, e in api["enums"].items():
            if self.wanted(name, e):
                self.check_enum(name, e)
        for name, e in api["structs"].items():
            if self.wanted(name, e):
                self.check_struct(name, e)
        for name, e in api["functions"].items():
            if self.wanted(name, e):
                self.check_function(name, e)
        for name, e in api["typedefs"].items():
            if self.wanted(name, {"tier": 2} if name in api["tier2_typedefs"] else {}):
                out = []
                if name not in act.typedef_names:
                    self.problem(out, "missing", "typedef", name)
                elif not self.t.same(e, act.typedefs.get(name, name)):
                    self.problem(out, "differs", f"is '{act.typedefs.get(name)}', expected '{e}'", name)
                self.tally("typedefs", not out)
                self.emit("typedef " + name, out)
        for name, e in api["constants"].items():
            if self.wanted(name, e):
                self.check_constant(name, e)

    def check_enum(self, name, e):
        have, out = self.act.enums.get(name), []
        if have is None and e["kind"] == "options" and name in self.act.typedefs:
            # NS_OPTIONS in C++: a plain integer typedef followed by an unnamed enum
            have = {"type": self.act.typedefs[name], "cases": e["cases"]}
        if have is None:
            self.problem(out, "missing", "enum type", name)
        elif canon(e["type"], self.t.exp) != canon(have["type"] or "int", self.t.act):
            self.problem(
                out, "differs", "underlying type is '{}', expected '{}'".format(have["type"] or "int", e["type"]), name
            )
        bits = SIZES.get(canon(e["type"], self.t.exp).lstrip("#"), 64)
        good = 0
        for c, v in e["cases"].items():
            ok = False
            if c not in self.act.constants:
                self.problem(out, "missing", f"value {c} (= {v})", name)
            else:
                got, owner = self.act.constants[c]
                if (got - v) % (1 << bits):
                    self.problem(out, "differs", f"value {c} is {got}, expected {v}", name)
                elif have is not None and c not in have["cases"]:
                    self.problem(out, "differs", f"value {c} belongs to enum '{owner}'", name)
                else:
                    ok = True
            good += ok
            self.tally("enum values", ok)
        self.emit(f"enum {name} (values {good}/{len(e['cases'])})", out)

    def check_struct(self, name, e):
        have, out = self.act.structs.get(name), []
        if have is None:
            self.problem(out, "missing", "struct", name)
        else:
            want = [(f["name"], f["type"]) for f in e["fields"]]
            if [n for n, _ in have] != [n for n, _ in want]:
                self.problem(
                    out,
                    "differs",
                    "fields are ({}), expected ({})".format(
                        ", ".join(n for n, _ in have), ", ".join(n for n, _ in want)
                    ),
                    name,
                )
            else:
                for (n, t), (_, h) in zip(want, have, strict=False):
                    if not self.t.same(t, h):
                        self.problem(out, "differs", f"field {n} is '{h}', expected '{t}'", name)
        self.tally("structs", not out)
        self.emit("struct " + name, out)

    def check_function(self, name, e):
        have, out = self.act.functions.get(name), []
        if have is None:
            self.problem(
                out, "missing", "function" + (" (defined as a macro)" if name in self.act.macros else ""), name
            )
        else:
            if not self.t.same(e["returns"], have["returns"]):
                self.problem(
                    out, "differs", "return type is '{}', expected '{}'".format(have["returns"], e["returns"]), name
                )
            if len(have["args"]) != len(e["args"]):
                self.problem(out, "differs", f"has {len(have['args'])} arguments, expected {len(e['args'])}", name)
            else:
                for i, (a, h) in enumerate(zip(e["args"], have["args"], strict=False)):
                    if not self.t.same(a["type"], h[1]):
                        self.problem(out, "differs", f"argument {i + 1} is '{h[1]}', expected '{a['type']}'", name)
        self.tally("functions", not out)
        self.emit("function " + name, out)

    def check_constant(self, name, e):
        out, act = [], self.act
        if name in act.vars:
            if e["linkage"] != "macro" and not self.t.same(e["type"], act.vars[name]):
                self.problem(out, "differs", "type is '{}', expected '{}'".format(act.vars[name], e["type"]), name)
        elif name in act.constants or name in act.macros:
            val = act.constants[name][0] if name in act.constants else None
            if val is None:
                m = re.match(r"^\(?\s*(-?(?:0x[0-9a-fA-F]+|\d+))[uUlL]*\s*\)?$", act.macros[name].strip())
                val = int(m.group(1), 0) if m else None
            if e.get("value") is not None and val is not None and val != e["value"]:
                self.problem(out, "differs", f"value is {val}, expected {e['value']}", name)
        else:
            self.problem(out, "missing", "constant", name)
        self.tally("constants", not out)
        self.emit("constant " + name, out)


SECTIONS = ("classes", "protocols", "enums", "structs", "functions", "typedefs", "constants")


def load_api(paths):
    api = {k: {} for k in SECTIONS}
    api["tier2_typedefs"] = set()
    for p in paths:
        with open(p, encoding="utf-8") as f:
            d = json.load(f)
        for k in SECTIONS:
            api[k].update(d.get(k, {}))
        api["tier2_typedefs"].update(d.get("tier2_typedefs", []))
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
        help="fact file(s); default: mps_api.json, mps_image_api.json and metal_api.json beside this script",
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
        "--allow-missing", action="store_true", help="missing things do not fail the run; differing ones still do"
    )
    ap.add_argument(
        "--tier",
        type=int,
        default=1,
        choices=(1, 2),
        help="metal_api.json: 1 = minimal compute surface (default), 2 = all members",
    )
    ap.add_argument("--max-since", metavar="VERSION", help="leave out what came after this macOS version, e.g. 10.15")
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
        "--strict-placement", action="store_true", help="members must be declared in the very class, not inherited"
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
