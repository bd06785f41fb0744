# SPDX-License-Identifier: Apache-2.0
"""Comparison of the declarations of headers with the fact base: missing and differing ones."""

import re

from objc_types import SIZES, Types, canon


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
        """Return the containers to search, nearest first: [(label, container)]."""
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
            bad += self.availability(m, have, label == name)
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
                # A readonly base redeclared readwrite further up still counts.
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
            bad += self.availability(p, have, label == name)
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

    @staticmethod
    def availability(member, have, in_place):
        """Check that exactly the unavailable members are marked so, in the class itself."""
        want = bool(member.get("unavailable"))
        if in_place and want == have["unavailable"]:
            return []
        return ["is not marked unavailable"] if want else ["is marked unavailable"] if have["unavailable"] else []

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
                elif (name in api["retained_typedefs"]) != ("NS_RETURNS_RETAINED" in act.typedefs.get(name, "")):
                    self.problem(out, "differs", "of blocks, returns a retained object or not", name)
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
            if bool(e.get("returns_retained")) != have["retained"]:
                self.problem(out, "differs", f"returns_retained is {have['retained']}", name)
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
