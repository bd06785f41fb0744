# SPDX-License-Identifier: Apache-2.0
"""The headers of openmps declare the same as Apple's, compile everywhere, and match the generator's output."""

import concurrent.futures
import glob
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "csrc" / "openmps" / "include"
CHECK_API = ROOT / "tools" / "api" / "check_api.py"
GENERATOR = ROOT / "tools" / "gen_headers.py"
CLANG = os.environ.get("CLANG", "clang-19")
LANGUAGES = {"objective-c": "-std=gnu11", "objective-c++": "-std=gnu++20"}
HEADERS = sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.h"))
UMBRELLAS = ["Metal/Metal.h", "MetalPerformanceShaders/MetalPerformanceShaders.h"]

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS has Apple's own headers")


def run(*command, **keywords):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **keywords)


def gcc_folder():
    """Return the newest GCC folder with the Objective-C headers and library."""
    found = glob.glob("/usr/lib/gcc/*/*/include/objc/objc.h")
    newest = max(found, key=lambda p: [int(x) for x in re.findall(r"\d+", p.split("/")[5])], default=None)
    return newest and pathlib.Path(newest).parents[2]


@pytest.fixture(scope="session")
def clang():
    """Return the compiler and its flags. A missing one is a failure: `make test` installs it."""
    if shutil.which(CLANG) is None:
        pytest.fail(f"{CLANG} is not installed; `make test` installs it, or set CLANG.")
    if gcc_folder() is None or not os.path.exists("/usr/include/GNUstep/Foundation/Foundation.h"):
        pytest.fail("GCC's objc/objc.h or GNUstep's Foundation.h is not installed; `make test` installs both.")
    flags = "-fobjc-runtime=gcc -fblocks -fobjc-exceptions -fexceptions -fconstant-string-class=NSConstantString"
    flags += " -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -D_NATIVE_OBJC_EXCEPTIONS=1 -I/usr/include/GNUstep"
    return [CLANG, *flags.split(), f"-I{gcc_folder()}/include", f"-I{INCLUDE}"]


def load_generator():
    spec = importlib.util.spec_from_file_location("gen_headers", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_api(include, *options):
    return run(sys.executable, CHECK_API, include, "--quiet", *options)


def counts(output):
    """Return {'classes': (283, 283), ...} from the summary of check_api."""
    return {name: (int(a), int(b)) for name, a, b in re.findall(r"([a-z ]+?) (\d+)/(\d+)", output)}


def test_generated_files_are_up_to_date():
    result = run(sys.executable, GENERATOR, "--check")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_headers_declare_all_of_apples_api(clang, language):
    strict = ("--strict-types", "--strict-placement", "--strict-attrs", "--include-unavailable", "--lang", language)
    result = check_api(INCLUDE, *strict)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = result.stdout.strip().splitlines()[-1]
    found = counts(summary.removeprefix("coverage:").replace(",", ""))
    assert {"classes", "selectors", "properties", "enum values"} == {name.strip() for name in found}
    for have, want in found.values():
        assert have == want > 0, summary


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("header", UMBRELLAS)
def test_umbrella_header_compiles_without_warnings(clang, tmp_path, header, language):
    source = tmp_path / "source.m"
    source.write_text(f"#import <{header}>\n")
    result = run(*clang, "-x", language, LANGUAGES[language], "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_header_compiles_on_its_own(clang, tmp_path, language):
    assert len(HEADERS) > 60
    flags = [LANGUAGES[language], "-Wall", "-Werror"]
    if language == "objective-c++":
        # Precompile Foundation, which takes four fifths of the time. The other language checks that headers include it.
        foundation = tmp_path / "foundation.h"
        foundation.write_text("#import <Foundation/Foundation.h>\n")
        compiled = tmp_path / "foundation.pch"
        run(*clang, "-x", f"{language}-header", *flags, foundation, "-o", compiled, check=True)
        flags += ["-include-pch", str(compiled)]

    def errors(header):
        source = tmp_path / header.replace("/", "_")
        source.write_text(f"#import <{header}>\n")
        result = run(*clang, "-x", language, *flags, "-fsyntax-only", source)
        return f"{header}: {result.stderr}" if result.returncode else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [e for e in pool.map(errors, HEADERS) if e]
    assert not failures, "\n".join(failures)


MUTATIONS = {
    "type": (
        "MPSNeuralNetwork/MPSCNNPooling.h",
        "kernelWidth:(NSUInteger)kernelWidth",
        "kernelWidth:(NSInteger)kernelWidth",
        "argument 2 (kernelWidth) is 'NSInteger', expected 'NSUInteger'",
    ),
    "selector": (
        "MPSNeuralNetwork/MPSCNNKernel.h",
        "- (BOOL)isResultStateReusedAcrossBatch;",
        "- (BOOL)isResultStateReusedInBatch;",
        "missing: selector -isResultStateReusedAcrossBatch",
    ),
    "enum value": (
        "MPSCore/MPSCoreTypes.h",
        "MPSImageFeatureChannelFormatFloat16 = 3,",
        "MPSImageFeatureChannelFormatFloat16 = 7,",
        "value MPSImageFeatureChannelFormatFloat16 is 7, expected 3",
    ),
    "property": (
        "MPSNeuralNetwork/MPSCNNKernel.h",
        "@property (nonatomic) MPSOffset offset;",
        "@property (nonatomic, readonly) MPSOffset offset;",
        "property offset: is readonly, expected readwrite",
    ),
    "unavailable": (
        "MPSNeuralNetwork/MPSNNReduce.h",
        "- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;",
        "- (instancetype)initWithDevice:(id<MTLDevice>)device;",
        "-initWithDevice:: is not marked unavailable",
    ),
    "available": (
        "MPSNeuralNetwork/MPSCNNKernel.h",
        "- (BOOL)appendBatchBarrier;",
        "- (BOOL)appendBatchBarrier NS_UNAVAILABLE;",
        "-appendBatchBarrier: is marked unavailable",
    ),
    "retained": (
        "Metal/MTLDevice.h",
        "MTLCopyAllDevices(void) NS_RETURNS_RETAINED;",
        "MTLCopyAllDevices(void);",
        "returns_retained is False",
    ),
    "retained block": (
        "MPSImage/MPSImageKernel.h",
        "NS_RETURNS_RETAINED (^MPSCopyAllocator)",
        "(^MPSCopyAllocator)",
        "of blocks, returns a retained object or not",
    ),
    "superclass": (
        "MPSNeuralNetwork/MPSCNNPooling.h",
        "@interface MPSCNNPoolingMax : MPSCNNPooling ",
        "@interface MPSCNNPoolingMax : MPSCNNPoolingAverage ",
        "superclass is 'MPSCNNPoolingAverage', expected 'MPSCNNPooling'",
    ),
}


def test_wrong_declarations_are_reported(clang, tmp_path):
    copy = tmp_path / "include"
    shutil.copytree(INCLUDE, copy)
    for what, (header, old, new, _) in MUTATIONS.items():
        text = (copy / header).read_text()
        assert old in text, what
        if what == "superclass":  # the other class must be declared before
            text = text.replace("@class", "@class MPSCNNPoolingAverage; @class", 1)
            block = re.search(r"@interface MPSCNNPoolingMax : .*?@end\n", text, re.S).group(0)
            text = text.replace(block, "") + "\n" + block
        (copy / header).write_text(text.replace(old, new, 1))
    result = check_api(copy, "--include-unavailable")
    assert result.returncode == 1, result.stdout + result.stderr
    unseen = [what for what, (*_, report) in MUTATIONS.items() if report not in result.stdout]
    assert not unseen, result.stdout


FORBIDDEN = {  # a message, and whether Apple's headers allow it
    "[[MPSNNReduceUnary alloc] initWithDevice:device]": False,
    "[(MPSCNNKernel *)[MPSNNReduceUnary alloc] initWithDevice:device]": True,
    "[[MPSNNReduceRowMin alloc] initWithDevice:device]": True,
    "[[MPSImageDescriptor alloc] init]": True,
    "[[MPSMatrix alloc] init]": False,
    "[[MPSCNNPoolingMax alloc] initWithDevice:device]": False,
    "[MPSCNNInstanceNormalizationGradientState temporaryStateWithCommandBuffer:buffer]": False,
    "[(id)[MPSCNNInstanceNormalizationGradientState class] temporaryStateWithCommandBuffer:buffer]": True,
    "[[[MPSCNNBinaryConvolutionNode alloc] init] convolutionGradientState]": False,
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_unavailable_messages_do_not_compile(clang, tmp_path, language):
    source = tmp_path / "source.m"
    arguments = "id<MTLDevice> device, id<MTLCommandBuffer> buffer"
    lines = [f"#import <{UMBRELLAS[1]}>"]
    for i, message in enumerate(FORBIDDEN):
        lines.append(f"id made_{i}({arguments}) {{ (void)device, (void)buffer; return {message}; }}")
    source.write_text("\n".join(lines) + "\n")
    result = run(*clang, "-x", language, LANGUAGES[language], "-fsyntax-only", "-ferror-limit=0", source)
    errors = re.findall(r"source\.m:(\d+):\d+: error: (.*)", result.stderr)
    refused = {message for i, message in enumerate(FORBIDDEN) if str(i + 2) in dict(errors)}
    assert refused == {message for message, is_allowed in FORBIDDEN.items() if not is_allowed}, result.stderr
    assert all(re.match(r"'\w+:?' is unavailable", text) for _, text in errors), result.stderr


def test_a_name_without_a_header_is_refused():
    module = load_generator()
    facts = module.Facts()
    facts.table["classes"]["MPSCNNUnheardOf"] = {"super": "MPSKernel", "protocols": [], "methods": [], "properties": []}
    with pytest.raises(SystemExit, match=r"MPSCNNUnheardOf \(classes\) is in no header"):
        module.load_headers(facts)


STUB_PROGRAM = """
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <stdio.h>
@interface Mine : MPSCNNPoolingMax
@end
@implementation Mine
@end
template <class F> void show(F call) {
    @try {
        call();
        puts("nothing raised");
    } @catch (NSException *e) {
        printf("%s: %s\\n", [[e name] UTF8String], [[e reason] UTF8String]);
    }
}
int main() {
    NSAutoreleasePool *pool = [NSAutoreleasePool new];
    show([] { (void)[MPSCNNPoolingMax alloc]; });
    show([] { (void)[NSClassFromString(@"MPSCNNPoolingMax") new]; });
    show([] { (void)[Mine alloc]; });
    show([] { (void)[MPSMatrixDescriptor rowBytesFromColumns:3 dataType:MPSDataTypeFloat32]; });
    show([] { (void)[MPSStateResourceList resourceListWithBufferSizes:1ul, 2ul, 0ul]; });
    [pool drain];
}
"""


def test_a_missing_class_raises_when_it_is_made_or_asked(clang, tmp_path):
    module = load_generator()
    (tmp_path / "stubs.mm").write_text(module.build_stubs(module.Facts(), done=set()))
    (tmp_path / "main.mm").write_text(STUB_PROGRAM)
    quiet = ("-Wno-incomplete-implementation", "-Wno-objc-property-implementation", "-Wno-protocol")
    program = tmp_path / "program"
    libraries = ("-lgnustep-base", "-lobjc", "-lBlocksRuntime", "-lstdc++", f"-L{gcc_folder()}")
    sources = (tmp_path / "stubs.mm", tmp_path / "main.mm")
    built = run(*clang, "-Wall", "-Werror", *quiet, *sources, "-o", program, *libraries)
    assert built.returncode == 0, built.stderr
    names = ["MPSCNNPoolingMax"] * 3 + ["MPSMatrixDescriptor", "MPSStateResourceList"]
    expected = [f"MPSNotImplementedException: {name} is not implemented by openmps yet." for name in names]
    assert run(program).stdout.splitlines() == expected


def test_categories_do_not_count_as_implementations(monkeypatch, tmp_path):
    module = load_generator()
    folder = tmp_path / "csrc" / "openmps" / "mps"
    folder.mkdir(parents=True)
    (folder / "a.mm").write_text("@implementation MPSKernel\n@end\n@implementation MPSImage (Engine)\n@end\n")
    (folder / "not_implemented.mm").write_text("@implementation MPSState\n@end\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    assert module.implemented_classes() == {"MPSKernel"}


def test_classes_implemented_through_a_macro_are_found():
    source = """
#define REDUCE(WHAT, KIND)                \\
    @implementation MPSNNReduce##WHAT     \\
    - (int)kind { return KIND; }          \\
    @end
#define PLAIN(NAME) @implementation NAME @end
#define CATEGORY(NAME) @implementation NAME (Engine) @end
REDUCE(RowMin, f(1))
REDUCE(RowMax, 2)
PLAIN(MPSCNNAdd)
CATEGORY(MPSCNNSubtract)
"""
    assert load_generator().implementations_in(source) == {"MPSNNReduceRowMin", "MPSNNReduceRowMax", "MPSCNNAdd"}
