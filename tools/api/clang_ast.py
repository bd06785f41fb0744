# SPDX-License-Identifier: Apache-2.0
"""Declarations of Objective-C headers, from clang's JSON dump of the AST."""

import glob
import json
import os
import re
import subprocess
import sys

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
    """Return the newest GCC's folder with objc/objc.h (libobjc-NN-dev)."""
    found = glob.glob("/usr/lib/gcc/*/*/include/objc/objc.h")
    if not found:
        sys.stderr.write("check_api: no objc/objc.h below /usr/lib/gcc (Debian: libobjc-12-dev)\n")
        sys.exit(2)
    found.sort(key=lambda p: [int(x) for x in re.findall(r"\d+", p.split("/")[5])])
    return os.path.dirname(os.path.dirname(found[-1]))


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
    """Yield (declaration, file at its start) for the wanted top-level declarations."""
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
        "unavailable": "UnavailableAttr" in attrs,
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
                "unavailable": any(y.get("kind") == "UnavailableAttr" for y in x.get("inner", [])),
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
        retained = any(x.get("kind") == "NSReturnsRetainedAttr" for x in node.get("inner", []))
        act.functions[node["name"]] = {"returns": q[:i].strip(), "args": args, "retained": retained}
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
