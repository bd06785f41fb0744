# SPDX-License-Identifier: Apache-2.0
"""Canonical forms of types, to compare the spellings of clang and the fact base."""

import re

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
    text = re.sub(r"\b(?:NS_RETURNS_RETAINED|NS_NOESCAPE|NS_UNAVAILABLE)\b", " ", text)
    text = text.replace("((^))", "(^)")  # block type with attributes
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
    """Return the canonical token string of a type; with a typedef table aliases are resolved."""
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
