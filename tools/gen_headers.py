#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the Objective-C headers of openmps from the facts in tools/api.

    gen_headers.py            write csrc/openmps/include/** and csrc/openmps/mps/not_implemented.mm
    gen_headers.py --check    write nothing; list the files that would change, and exit with 1 if there are any

Input:
    tools/api/{mps,mps_image,mps_matrix,metal}_api.json    Apple's declarations (of Metal: tier 1)
    tools/api/headers.json    the header of each name
    csrc/openmps/**/*.mm      which classes have an @implementation

Run it again after adding or removing the @implementation of a class. Python standard library only.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
API = ROOT / "tools" / "api"
OPENMPS = pathlib.Path("csrc/openmps")
INCLUDE = OPENMPS / "include"
STUBS = OPENMPS / "mps" / "not_implemented.mm"

FACTS = ("mps_api.json", "mps_image_api.json", "mps_matrix_api.json", "metal_api.json")
SECTIONS = ("constants", "enums", "structs", "typedefs", "protocols", "classes", "functions")
UMBRELLAS = {
    "Metal/Metal.h": "Metal",
    "MPSCore/MPSCore.h": "MPSCore",
    "MPSImage/MPSImage.h": "MPSImage",
    "MPSMatrix/MPSMatrix.h": "MPSMatrix",
    "MPSNDArray/MPSNDArray.h": "MPSNDArray",
    "MPSNeuralNetwork/MPSNeuralNetwork.h": "MPSNeuralNetwork",
}
MPS_UMBRELLA = "MetalPerformanceShaders/MetalPerformanceShaders.h"
SUPPORT = "Metal/OpenMPSSupport.h"
WIDTH = 110

BANNER = "// SPDX-License-Identifier: Apache-2.0\n// Generated from tools/api by tools/gen_headers.py; do not edit.\n"

SUPPORT_TEXT = """
// Types that Apple's systems have and GNUstep lacks, and the linkage of C functions.

#pragma once

#import <Foundation/Foundation.h>

#ifdef __cplusplus
#define OPENMPS_EXTERN extern "C" __attribute__((visibility("default")))
#else
#define OPENMPS_EXTERN extern __attribute__((visibility("default")))
#endif
#define OPENMPS_INLINE static inline __attribute__((unused))

// GNUstep defines it as nothing. Methods that Apple marks as unavailable do not compile here either.
#undef NS_UNAVAILABLE
#define NS_UNAVAILABLE __attribute__((unavailable))

typedef double CFTimeInterval;
typedef NSString *NSErrorUserInfoKey;

// Spelled as libdispatch spells them, so that both can be included.
typedef struct dispatch_queue_s *dispatch_queue_t;
typedef struct dispatch_data_s *dispatch_data_t;
typedef struct CGColorConversionInfo *CGColorConversionInfoRef;  // CoreGraphics

typedef float vector_float2 __attribute__((ext_vector_type(2)));
typedef unsigned char vector_uchar16 __attribute__((ext_vector_type(16)));
"""

BLOCKS_TEXT = """
// GNUstep includes this name; the blocks runtime of Debian calls it <Block.h>.

#pragma once

#include <Block.h>
"""

# Bodies of the functions that Apple defines inline.
BODIES = {
    "MPSDataTypeBitsCount": ["return (size_t)t & 0xffff;  // the low half of a data type is its width"],
    "MPSSizeofMPSDataType": ["return (MPSDataTypeBitsCount(t) + 7) / 8;"],
    "MTLOriginMake": ["MTLOrigin origin = {x, y, z};", "return origin;"],
    "MTLSizeMake": ["MTLSize size = {width, height, depth};", "return size;"],
    "MTLRegionMake1D": ["return MTLRegionMake3D(x, 0, 0, width, 1, 1);"],
    "MTLRegionMake2D": ["return MTLRegionMake3D(x, y, 0, width, height, 1);"],
    "MTLRegionMake3D": ["MTLRegion region = {{x, y, z}, {width, height, depth}};", "return region;"],
    "MTLTextureSwizzleChannelsMake": [
        "MTLTextureSwizzleChannels channels = {r, g, b, a};",
        "return channels;",
    ],
}
# An inline function comes after those that its body calls.
FUNCTION_ORDER = {"MTLRegionMake3D": 0, "MPSDataTypeBitsCount": 0}


class Facts:
    """The merged fact files; of Metal only tier 1."""

    def __init__(self):
        self.table = {section: {} for section in SECTIONS}
        self.skipped_protocols = {}
        self.retained_typedefs = set()
        for name in FACTS:
            data = json.loads((API / name).read_text(encoding="utf-8"))
            tier2 = set(data.get("tier2_typedefs", ()))
            self.retained_typedefs.update(data.get("retained_typedefs", ()))
            for section in SECTIONS:
                for key, entry in data[section].items():
                    tier = entry.get("tier", 1) if isinstance(entry, dict) else 1
                    if tier == 1 and key not in tier2:
                        self.table[section][key] = entry
                    elif section == "protocols":
                        self.skipped_protocols[key] = entry["protocols"]
        self.section_of = {}
        for section in SECTIONS:
            for key in self.table[section]:
                self.section_of.setdefault(key, section)

    def protocols(self, entry):
        """Return the adopted protocols; an omitted protocol is replaced by those that it adopts."""
        out = []
        for name in entry["protocols"]:
            for known in self.skipped_protocols.get(name, [name]):
                if known not in out:
                    out.append(known)
        return out


def load_headers(facts):
    """Return headers.json, after checking that every name is in exactly one header."""
    headers = json.loads((API / "headers.json").read_text(encoding="utf-8"))
    home, problems = {}, []
    for header, sections in headers.items():
        for section, names in sections.items():
            for name in names:
                if name in home:
                    problems.append(f"{name} is in {home[name]} and in {header}")
                if name not in facts.table.get(section, {}):
                    problems.append(f"{header}: {name} is not in the {section} of the facts")
                home[name] = header
    for section in SECTIONS:
        problems += [f"{name} ({section}) is in no header" for name in facts.table[section] if name not in home]
    if problems:
        sys.exit("gen_headers: tools/api/headers.json:\n  " + "\n  ".join(problems))
    return headers, home


# ------------------------------------------------------------------------------------------------- types


def tidy(text):
    """Write `id <P> *` as `id<P> *`."""
    return re.sub(r"\bid <", "id<", text).strip()


def is_nullable(text, nullability):
    return nullability in ("nullable", "nullable_or_unspecified") or text == "NSZone *"


def block_parameters(text):
    """Make the results of a block nullable if it also has an error parameter."""
    if "NSError *" not in text:
        return text
    head, parameters = text.split("(^)(", 1)
    parts = [
        part + " _Nullable" if part.startswith("id<") else re.sub(r"\*$", "*_Nullable", part)
        for part in parameters[:-1].split(", ")
    ]
    return head + "(^)(" + ", ".join(parts) + ")"


def declarator(text, name, nullability=None):
    """Return the C declaration of `name` with type `text`, for an assume-nonnull region."""
    text = tidy(text)
    if "(^)" in text:
        mark = "_Nullable " if is_nullable(text, nullability) else ""
        return block_parameters(text).replace("(^)", f"(^{mark}{name})")
    array = re.fullmatch(r"(.*)(\[\d+\])", text)
    if array:
        return f"{array.group(1)} {name}{array.group(2)}"
    text = annotated(text, nullability)
    return text + name if text.endswith("*") else f"{text} {name}"


def annotated(text, nullability=None):
    """Return a type with the annotations that an assume-nonnull region, which covers one pointer level, lacks."""
    text = tidy(text)
    nullable = is_nullable(text, nullability)
    if "(^)" in text:
        return block_parameters(text).replace("(^)", "(^_Nullable)" if nullable else "(^)")
    outer = "_Nullable" if nullable else "_Nonnull"
    if text == "NSError **":
        return text  # both levels are nullable by convention
    if re.fullmatch(r"const id<\w+> \*", text):
        return text[:-1] + f"_Nullable *{outer}"
    if re.fullmatch(r"MTLAutoreleased\w+ \*", text):
        return text[:-1] + f"_Nullable *{outer}"
    if re.fullmatch(r"id<\w+> \*", text):
        return text[:-1] + f"_Nonnull *{outer}"
    if text.endswith("**"):
        return text[:-2] + f"*_Nullable *{outer}"
    return text + ("_Nullable" if text.endswith("*") else " _Nullable") if nullable else text


def names_in(text):
    return re.findall(r"[A-Za-z_]\w*", text)


# ------------------------------------------------------------------------------------------- declarations


def since(entry, parent=None):
    """Return ` // macOS 10.15, deprecated 11.0`, or "" if the class has the same version."""
    parts = []
    version = entry.get("since_macos")
    if version and version != parent:
        parts.append(f"macOS {version}")
    if entry.get("deprecated"):
        parts.append(f"deprecated {entry['deprecated']}")
    return "  // " + ", ".join(parts) if parts else ""


def unavailable(member):
    """Return ` NS_UNAVAILABLE` for members that Apple marks unavailable, otherwise ""."""
    return " NS_UNAVAILABLE" if member.get("unavailable") else ""


def emit_method(method, parent):
    head = f"{'+' if method['class_method'] else '-'} ({annotated_result(method)})"
    labels = method["selector"].split(":")
    comment = since(method, parent)
    if not method["args"]:
        return [head + labels[0] + unavailable(method) + ";" + comment]
    pieces = [
        f"{label}:({method_type(arg['type'], arg.get('nullability'))}){arg['name']}"
        for label, arg in zip(labels, method["args"], strict=False)
    ]
    tail = (", ..." if method.get("variadic") else "") + unavailable(method) + ";"
    line = head + " ".join(pieces) + tail
    if len(line) <= WIDTH:
        return [line + comment]
    column = len(head) + len(labels[0])
    aligned = [head + pieces[0]]
    aligned += [" " * (column - len(k)) + p for k, p in zip(labels[1:], pieces[1:], strict=False)]
    if max(map(len, labels)) > column - 4 or max(map(len, aligned)) > WIDTH:
        aligned = [head + pieces[0]] + ["    " + piece for piece in pieces[1:]]
    aligned[-1] += tail + comment
    return aligned


def method_type(text, nullability):
    """Return a parameter type, with the keyword `nullable` for simple types."""
    text = tidy(text)
    if is_nullable(text, nullability) and not any(mark in text for mark in ("(^)", "**", "MTLAutoreleased")):
        return "nullable " + text
    return annotated(text, nullability)


def annotated_result(method):
    return method_type(method["returns"], method.get("returns_nullability"))


def emit_property(prop, parent):
    attributes = ["class"] if prop.get("class_property") else []
    attributes += [
        a for a in ("nonatomic", "atomic", "copy", "retain", "strong", "weak") if a in prop.get("attributes", ())
    ]
    if prop["readonly"]:
        attributes.append("readonly")
    if is_nullable(prop["type"], prop.get("nullability")):
        attributes.append("nullable")
    if prop.get("getter") and prop["getter"] != prop["name"]:
        attributes.append("getter=" + prop["getter"])
    if prop.get("setter") and prop["setter"] != f"set{prop['name'][0].upper()}{prop['name'][1:]}:":
        attributes.append("setter=" + prop["setter"])
    head = f"@property ({', '.join(attributes)}) " if attributes else "@property "
    return [head + declarator(prop["type"], prop["name"]) + unavailable(prop) + ";" + since(prop, parent)]


def wanted(member):
    return member.get("tier", 1) == 1 and "accessor_of" not in member


def is_initialiser(method):
    return method["class_method"] or re.match(r"init(?![a-z])", method["selector"])


def emit_members(properties, methods, parent):
    groups = [
        [line for p in properties for line in emit_property(p, parent)],
        [line for m in methods if is_initialiser(m) for line in emit_method(m, parent)],
        [line for m in methods if not is_initialiser(m) for line in emit_method(m, parent)],
    ]
    out = []
    for group in groups:
        if group:
            out += ([""] if out else []) + group
    return out


def emit_protocol(facts, name, entry):
    adopted = facts.protocols(entry)
    out = [f"@protocol {name}" + (f" <{', '.join(adopted)}>" if adopted else "") + since(entry)]
    properties = [p for p in entry["properties"] if wanted(p)]
    methods = [m for m in entry["methods"] if wanted(m)]
    for keyword, optional in (("", False), ("@optional", True)):
        body = emit_members(
            [p for p in properties if bool(p.get("optional")) == optional],
            [m for m in methods if bool(m.get("optional")) == optional],
            entry.get("since_macos"),
        )
        if body:
            out += [""] + ([keyword] if keyword else []) + body
    return [*out, "", "@end"]


def as_inherited(facts, entry, method):
    """Return an unavailable method as its superclass declares it: only there do the facts have nullability."""
    while method.get("unavailable") and entry["super"] in facts.table["classes"]:
        entry = facts.table["classes"][entry["super"]]
        for other in entry["methods"]:
            if all(other[key] == method[key] for key in ("selector", "class_method")) and not other.get("unavailable"):
                return other | {key: method[key] for key in ("unavailable", "since_macos", "deprecated")}
    return method


def emit_class(facts, name, entry):
    adopted = facts.protocols(entry)
    out = [f"@interface {name} : {entry['super']}" + (f" <{', '.join(adopted)}>" if adopted else "")]
    root = entry["super"] not in facts.table["classes"]
    out[0] += (" {" if root else "") + since(entry)
    if root:
        out += ["  @protected", "    void *_Nullable _openmps;", "}"]
    body = emit_members(
        [p for p in entry["properties"] if wanted(p)],
        [as_inherited(facts, entry, m) for m in entry["methods"] if wanted(m)],
        entry.get("since_macos"),
    )
    return out + (["", *body, ""] if body else []) + ["@end"]


def emit_enum(name, entry):
    macro = "NS_OPTIONS" if entry["kind"] == "options" else "NS_ENUM"
    out = [f"typedef {macro}({entry['type']}, {name}) {{" + since(entry)]
    wide = entry["kind"] == "options" or max(entry["cases"].values()) > 0xFFFF
    for case, value in entry["cases"].items():
        alias = entry.get("aliases", {}).get(case)
        if alias and list(entry["cases"]).index(alias) < list(entry["cases"]).index(case):
            text = alias
        else:
            text = f"{value:#x}" if wide and value > 9 else str(value)
            if value > 0x7FFFFFFF:
                text += "u" if value <= 0xFFFFFFFF else "ul"
        out.append(f"    {case} = {text},")
    return [*out, "};"]


def emit_struct(name, entry):
    tag = entry.get("tag", name)
    out = [f"typedef struct {tag + ' ' if tag else ''}{{"]
    out += [f"    {declarator(field['type'], field['name'])};" for field in entry["fields"]]
    return [*out, f"}} {name};"]


def emit_typedef(name, text, retained=False):
    # The assume-nonnull region does not cover the result of a block.
    mark = " NS_RETURNS_RETAINED" if retained else ""
    text = re.sub(r"^(id ?<\w+>) \(\^\)", rf"\1 _Nonnull{mark} (^)", text)
    return [f"typedef {declarator(text, name)};"]


def emit_constant(name, entry):
    if entry["linkage"] == "macro":
        return [f"#define {name} {entry['value']}"]
    plain = re.sub(r"^const ", "", entry["type"])
    return [f"OPENMPS_EXTERN {plain} const {name};" + since(entry)]


def emit_function(name, entry):
    arguments = [declarator(a["type"], a["name"], a.get("nullability")) for a in entry["args"]]
    result = annotated(entry["returns"], "nullable" if entry["returns"] == "id <MTLDevice>" else None)
    head = ("OPENMPS_INLINE " if entry["inline"] else "OPENMPS_EXTERN ") + declarator(result, name) + "("
    lines, line = [], head
    for i, argument in enumerate(arguments or ["void"]):
        piece = argument + (", " if i + 1 < len(arguments) else ")")
        if len(line) + len(piece) > WIDTH:
            lines.append(line.rstrip())
            line = " " * (4 if i == 0 or lines[0] == head else len(head))
        line += piece
    if entry["inline"]:
        return [*lines, line + " {", *["    " + s for s in BODIES[name]], "}"]
    retained = " NS_RETURNS_RETAINED" if entry.get("returns_retained") else ""
    return [*lines, line + retained + ";" + since(entry)]


# ------------------------------------------------------------------------------------------------ headers


class Header:
    def __init__(self, facts, home, path, sections):
        self.facts, self.home, self.path, self.sections = facts, home, path, sections
        self.needs, self.forward_classes, self.forward_protocols = set(), set(), set()

    def use(self, text, whole=False):
        """Record the header of a type, or for classes and protocols a forward declaration."""
        for name in names_in(text):
            section = self.facts.section_of.get(name)
            if section is None:
                continue
            if not whole and section == "classes":
                self.forward_classes.add(name)
            elif not whole and section == "protocols":
                self.forward_protocols.add(name)
            else:
                self.needs.add(self.home[name])

    def gather(self):
        table = self.facts.table
        for section, names in self.sections.items():
            for name in names:
                entry = table[section][name]
                if section in ("classes", "protocols"):
                    for whole in [entry.get("super") or "", *self.facts.protocols(entry)]:
                        self.use(whole, whole=True)
                    for member in entry["properties"] + entry["methods"]:
                        if wanted(member):
                            self.use(member.get("type") or member["returns"])
                            for argument in member.get("args", ()):
                                self.use(argument["type"])
                elif section == "functions":
                    self.use(entry["returns"])
                    for argument in entry["args"]:
                        self.use(argument["type"])
                elif section == "structs":
                    for field in entry["fields"]:
                        self.use(field["type"])
                else:
                    self.use(entry if section == "typedefs" else entry["type"])
        self.needs.discard(self.path)

    def ordered(self, section, names):
        """Return names in the order of the facts, but after those of the same header that they depend on."""
        table = self.facts.table[section]
        place = {name: i for i, name in enumerate(table)}
        names = sorted(names, key=lambda n: (FUNCTION_ORDER.get(n, 1), place[n]))
        out = []

        def visit(name):
            if name in out:
                return
            entry = table[name]
            if section == "classes":
                base = [entry["super"]]
            elif section == "protocols":
                base = entry["protocols"]
            elif section == "structs":
                base = [x for f in entry["fields"] for x in names_in(f["type"])]
            elif section == "typedefs":
                base = names_in(entry)
            else:
                base = []
            for other in base:
                if other in names:
                    visit(other)
            out.append(name)

        for name in names:
            visit(name)
        return out

    def text(self, imports):
        facts = self.facts
        out = ["", "#pragma once", "", *imports]
        out += ["", "NS_ASSUME_NONNULL_BEGIN"]
        if self.forward_classes or self.forward_protocols:
            out.append("")
        out += wrapped("@class", sorted(self.forward_classes))
        out += wrapped("@protocol", sorted(self.forward_protocols))
        constants = [facts.table["constants"][name]["type"] for name in self.sections.get("constants", ())]
        first = {name for text in constants for name in names_in(text)} & set(self.sections.get("typedefs", ()))
        plan = [("typedefs", first)]
        plan += [(section, set(self.sections.get(section, ())) - first) for section in SECTIONS]
        for section, chosen in plan:
            table = facts.table[section]
            names = self.ordered(section, chosen)
            dense = section in ("constants", "typedefs") or (
                section == "functions" and not any(table[n]["inline"] for n in names)
            )
            for i, name in enumerate(names):
                entry = table[name]
                if i == 0 or not dense:
                    out.append("")
                if section == "classes":
                    out += emit_class(facts, name, entry)
                elif section == "protocols":
                    out += emit_protocol(facts, name, entry)
                elif section == "typedefs":
                    out += emit_typedef(name, entry, retained=name in facts.retained_typedefs)
                else:
                    out += EMIT[section](name, entry)
        out += ["", "NS_ASSUME_NONNULL_END", ""]
        return BANNER + "\n".join(out)


EMIT = {
    "constants": emit_constant,
    "enums": emit_enum,
    "structs": emit_struct,
    "functions": emit_function,
}


def wrapped(keyword, names):
    if not names:
        return []
    lines, line = [], keyword
    for i, name in enumerate(names):
        piece = f" {name}" + ("," if i + 1 < len(names) else ";")
        if len(line) + len(piece) > WIDTH:
            lines.append(line)
            line = "   "
        line += piece
    return [*lines, line]


def check_cycles(headers):
    state = {}

    def visit(path, trail):
        if state.get(path) == "done":
            return
        if path in trail:
            sys.exit("gen_headers: headers need each other: " + " -> ".join([*trail[trail.index(path) :], path]))
        for other in sorted(headers[path].needs):
            visit(other, [*trail, path])
        state[path] = "done"

    for path in headers:
        visit(path, [])


def umbrella(folder, paths):
    return BANNER + "\n#pragma once\n\n" + "".join(f"#import <{p}>\n" for p in paths if p.startswith(folder + "/"))


def build_headers(facts):
    mapping, home = load_headers(facts)
    headers = {path: Header(facts, home, path, sections) for path, sections in mapping.items()}
    for header in headers.values():
        header.gather()
    check_cycles(headers)
    files = {SUPPORT: BANNER + SUPPORT_TEXT, "objc/blocks_runtime.h": BANNER + BLOCKS_TEXT}
    for path, header in headers.items():
        if path == MPS_UMBRELLA:
            imports = [f"#import <{p}>" for p in UMBRELLAS]
        else:
            imports = [f"#import <{SUPPORT}>"] + [f"#import <{p}>" for p in sorted(header.needs)]
        files[path] = header.text(imports)
    for path, folder in UMBRELLAS.items():
        files[path] = umbrella(folder, sorted(mapping))
    return files


# ----------------------------------------------------------------------------------- not implemented yet

STUBS_TEXT = """
// The classes of the headers that have no @implementation elsewhere in openmps. They exist, so that programs link
// and the classes can be named, but every attempt to make or ask one raises MPSNotImplementedException.

#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

namespace {

[[noreturn]] void raise_not_implemented(NSString *name) {
    [[NSException exceptionWithName:@"MPSNotImplementedException"
                             reason:[name stringByAppendingString:@" is not implemented by openmps yet."]
                           userInfo:nil] raise];
    __builtin_unreachable();
}

}  // namespace

// The methods which the headers declare are left out on purpose (the build turns the warnings off for this file):
// the runtime then ends in +doesNotRecognizeSelector:, or in +forwardInvocation: if it has a signature.
#define OPENMPS_NOT_IMPLEMENTED(NAME)                                                             \\
    @implementation NAME                                                                          \\
    + (id)allocWithZone:(NSZone *)zone { raise_not_implemented(@#NAME); }                         \\
    + (void)doesNotRecognizeSelector:(SEL)selector { raise_not_implemented(@#NAME); }             \\
    + (void)forwardInvocation:(NSInvocation *)invocation { raise_not_implemented(@#NAME); }       \\
    @end

"""


def implementations_in(source):
    """Return the classes that a source implements, directly or by a macro of its own. Categories do not count."""
    source = source.replace("\\\n", " ")
    pattern = r"@implementation\s+([\w#]+)(?![\w#])(?!\s*\()"
    found = set(re.findall(pattern, re.sub(r"^[ \t]*#[ \t]*define.*$", "", source, flags=re.M)))
    for macro, names, body in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)(.*)$", source, re.M):
        parameters = [name.strip() for name in names.split(",")]
        for written in re.findall(pattern, body):
            for use in re.findall(rf"^[ \t]*{macro}\(([^()]*)", source, re.M):
                values = dict(zip(parameters, [value.strip() for value in use.split(",")], strict=False))
                found.add("".join(values.get(part, part) for part in written.split("##")))
    return found


def implemented_classes():
    """Return the classes with an @implementation in a source other than the generated one."""
    paths = [path for path in sorted((ROOT / OPENMPS).rglob("*.mm")) if path != ROOT / STUBS]
    return set().union(*(implementations_in(path.read_text(encoding="utf-8")) for path in paths))


def build_stubs(facts, done):
    names = sorted(name for name in facts.table["classes"] if name not in done)
    return BANNER + STUBS_TEXT + "".join(f"OPENMPS_NOT_IMPLEMENTED({name})\n" for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 if a file differs")
    options = parser.parse_args()
    facts = Facts()
    files = {ROOT / INCLUDE / path: text for path, text in build_headers(facts).items()}
    files[ROOT / STUBS] = build_stubs(facts, implemented_classes())
    here = {p for p in (ROOT / INCLUDE).rglob("*") if p.is_file()}
    stale = sorted(here - set(files))
    differing = [p for p in sorted(files) if not p.is_file() or p.read_text(encoding="utf-8") != files[p]]
    if options.check:
        for path in [*differing, *stale]:
            print(f"differs: {path.relative_to(ROOT)}")
        if differing or stale:
            sys.exit("gen_headers: run tools/gen_headers.py")
        return
    for path in differing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    for path in stale:
        path.unlink()
    print(f"gen_headers: {len(differing)} of {len(files)} files written, {len(stale)} removed")


if __name__ == "__main__":
    main()
