# SPDX-License-Identifier: Apache-2.0
"""Programs written for a Mac: those of docs/objective_c.md run, and openmps/compat.h provides what the page lists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpscnn import config
from support import SANITIZED

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "objective_c.md").read_text()
COMPAT = ("-include", "openmps/compat.h")

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has all of this"),
    pytest.mark.skipif(SANITIZED, reason="the programs would need the sanitizer's runtime"),
]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment["MALLOC_PERTURB_"] = "165"  # freed memory is overwritten
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)


@pytest.fixture
def build(tmp_path: Path):
    """Return a function that compiles a program and returns its path."""

    def build(source: str, *flags: str, name: str = "program.mm", errors: str | None = None) -> Path:
        compiler = shutil.which("clang++-19" if name.endswith(".mm") else "clang-19")
        if compiler is None:
            pytest.fail("clang-19 is not installed; `make test` installs it.")
        (tmp_path / name).write_text(source)
        program = tmp_path / "program"
        compiled = run(compiler, *config.objcflags(), *flags, tmp_path / name, "-o", program, *config.libs())
        if errors is None:
            assert compiled.returncode == 0, compiled.stderr
        else:
            assert compiled.returncode == 1, "it compiled"
            assert re.search(errors, compiled.stderr), compiled.stderr
        return program

    return build


def output(program: Path) -> list[str]:
    result = run(program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == "", "GNUstep prints a line for each object without a pool"
    return result.stdout.splitlines()


def test_the_page_compiles_and_prints_what_it_shows(build):
    (source,) = re.findall(r"^```objc\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^clang.*$", PAGE, re.MULTILINE)
    assert " ".join(COMPAT) in line
    program = build(source, "-Wall", "-Werror", *COMPAT)
    assert [row.rstrip() for row in output(program)] == shown.splitlines()
    # The header turns it into a program for Linux.
    build(source, errors=r"dispatch_queue_t|API_AVAILABLE|memset_pattern4|Float32|__weak|nil")


NULLS = """
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <stdio.h>
static int take(float *pointer, NSError **error, unsigned long number) { return !pointer && !error && !number; }
int main(void) {
    @autoreleasepool {
        id object = nil;
        Class kind = Nil;
        id<MTLBuffer> buffer = [MTLCreateSystemDefaultDevice() newBufferWithLength:16 options:NUMBER];
        NSArray *list = [NSArray arrayWithObjects:@"a", nil];
        object = list ? list : nil;
        printf("%d %d %d %d %d\\n", take(nil, nil, NUMBER), kind == Nil, (int)[list count], object != nil, !!buffer);
    }
}
"""


@pytest.mark.parametrize(("name", "number"), [("program.mm", "nil"), ("program.m", "0")])
def test_nil_is_a_null_pointer_of_any_kind(build, name, number):
    flags = (f"-DNUMBER={number}", "-Werror", "-Wno-null-conversion")
    assert output(build(NULLS, *flags, *COMPAT, name=name)) == ["1 1 1 1 1"]
    if name == "program.mm":
        build(NULLS, *flags, name=name, errors="take")


WITHOUT_A_POOL = """
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <stdio.h>
int main(void) {
    id<MTLDevice> device = DEVICE;
    NSString *text = [NSString stringWithFormat:@"%d", 1];
    for (int i = 0; i < 100; ++i)
        [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                       width:1 height:1 featureChannels:1];
    NSAutoreleasePool *own = [[NSAutoreleasePool alloc] init];
    id<MTLCommandBuffer> commands = [[[device newCommandQueue] autorelease] commandBuffer];
    [commands commit];
    [commands waitUntilCompleted];
    [own drain];
    printf("%s %d\\n", [text UTF8String], (int)[text retainCount]);
}
"""


@pytest.mark.parametrize("device", ["MTLCreateSystemDefaultDevice()", "[MTLCopyAllDevices() objectAtIndex:0]"])
def test_a_main_without_a_pool_prints_nothing(build, device):
    assert output(build(WITHOUT_A_POOL.replace("DEVICE", device))) == ["1 1"]


DISPATCH = """
#import <dispatch/dispatch.h>
#include <stdio.h>
int main() {
    __block int calls = 0;
    static dispatch_once_t once;
    for (int i = 0; i < 3; ++i) dispatch_once(&once, ^{ ++calls; });
    printf("once %d\\n", calls);

    dispatch_semaphore_t semaphore = dispatch_semaphore_create(1);
    bool first = dispatch_semaphore_wait(semaphore, DISPATCH_TIME_NOW) == 0;
    bool second = dispatch_semaphore_wait(semaphore, dispatch_time(DISPATCH_TIME_NOW, 5 * NSEC_PER_MSEC)) == 0;
    printf("semaphore %d %d\\n", first, second);

    dispatch_queue_t queue = dispatch_queue_create("one after the other", DISPATCH_QUEUE_SERIAL);
    __block int order = 0, wrong = 0;
    for (int i = 0; i < 100; ++i)
        dispatch_async(queue, ^{
            @autoreleasepool { wrong += [[NSNumber numberWithInt:order++] intValue] != i; }
        });
    __block int seen = 0;
    dispatch_sync(queue, ^{ seen = order; });
    printf("serial %d %d\\n", seen, wrong);

    // Each waits for the other: they run side by side.
    dispatch_semaphore_t a = dispatch_semaphore_create(0), b = dispatch_semaphore_create(0);
    dispatch_group_t group = dispatch_group_create();
    dispatch_queue_t global = dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0);
    dispatch_group_async(group, global, ^{
        dispatch_semaphore_signal(a);
        dispatch_semaphore_wait(b, DISPATCH_TIME_FOREVER);
    });
    dispatch_group_async(group, global, ^{
        dispatch_semaphore_signal(b);
        dispatch_semaphore_wait(a, DISPATCH_TIME_FOREVER);
    });
    printf("group %ld\\n", (long)dispatch_group_wait(group, DISPATCH_TIME_FOREVER));
    dispatch_group_enter(group);
    printf("late %d\\n", dispatch_group_wait(group, dispatch_time(DISPATCH_TIME_NOW, NSEC_PER_MSEC)) != 0);
    dispatch_group_leave(group);

    dispatch_time_t start = dispatch_time(DISPATCH_TIME_NOW, 0);
    dispatch_after(dispatch_time(start, 20 * NSEC_PER_MSEC), dispatch_get_main_queue(), ^{
        printf("after %d\\n", dispatch_time(DISPATCH_TIME_NOW, 0) - start >= 20 * NSEC_PER_MSEC);
        exit(0);
    });
    fflush(stdout);
    dispatch_main();
}
"""


def test_dispatch(build):
    expected = ["once 1", "semaphore 1 0", "serial 100 0", "group 0", "late 1", "after 1"]
    assert output(build(DISPATCH, "-Wall", "-Werror", *COMPAT)) == expected


NAMES = """
#include <TargetConditionals.h>
#include <Availability.h>
#include <AvailabilityMacros.h>
#import <simd/simd.h>
#include <fstream>
#include <thread>
#include <stdio.h>
#if !TARGET_OS_OSX || TARGET_OS_IPHONE || MAC_OS_X_VERSION_MIN_REQUIRED < __MAC_10_14
#error
#endif
NS_SWIFT_NAME(count(of:)) API_AVAILABLE(macos(10.13), ios(11.0)) static int count_of(NSArray *__nonnull list) {
    return (int)list.count;
}
int main() {
    char text[4], longer[8] = "ab";
    unsigned length = strlcpy(text, "abcdef", sizeof text);
    strlcat(longer, "cdefghij", sizeof longer);
    unsigned char bytes[6], pattern[4] = {1, 2, 3, 4};
    memset_pattern4(bytes, pattern, sizeof bytes);
    printf("%u %s %s %d %d\\n", length, text, longer, bytes[3], bytes[5]);
    simd_float4 v = {1, 2, 3, 4};
    v = v.wzyx * 2;
    UInt32 swapped = CFSwapInt32(0x01020304u);
    printf("%g %x %d\\n", v.x, swapped, count_of([NSArray arrayWithObject:@"one"]));
    CFAbsoluteTime now = CFAbsoluteTimeGetCurrent();
    printf("%d\\n", now - [NSDate timeIntervalSinceReferenceDate] < 1 && now > 0);
    if (@available(macOS 10.14, *)) printf("available\\n");
}
"""


def test_names_that_a_mac_has(build):
    assert output(build(NAMES, "-std=gnu++20", *COMPAT)) == ["6 abc abcdefg 4 2", "8 4030201 1", "1", "available"]


POOLS = """
#include <stdio.h>
static int gone = 0;
@interface Thing : NSObject
@end
@implementation Thing
- (void)dealloc {
    ++gone;
    [super dealloc];
}
@end
int main() {
    @autoreleasepool {
        [[[Thing alloc] init] autorelease];
    }
    printf("%d\\n", gone);
}
"""


def test_pools_of_programs_for_arc_let_nothing_go(build):
    assert output(build(POOLS, *COMPAT)) == ["0"]
    assert output(build(POOLS, "-DOPENMPS_COMPAT_MANUAL_RETAIN", *COMPAT)) == ["1"]


INITIALIZERS = """
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <stdio.h>
@interface Mine : NSObject
+ (int)seven;
@end
@implementation Mine
+ (int)seven { return 7; }
@end
static int early = [Mine seven];
static BOOL responds = [@"text" respondsToSelector:@selector(length)];
static NSUInteger length = [@"text" length];
int main() { printf("%d %d %d %d\\n", early, [Mine seven], responds, (int)length); }
"""


def test_what_initializers_cannot_do(build):
    assert output(build(INITIALIZERS, *COMPAT)) == ["0 7 0 4"]


CATEGORY = """
#import <Foundation/Foundation.h>
NSUInteger before = [@"x" length];  // a table of methods without those below
@interface NSString (Doubled)
- (NSString *)doubled;
@end
@implementation NSString (Doubled)
- (NSString *)doubled { return [self stringByAppendingString:self]; }
@end
@interface NSObject (Seven)
- (int)seven;
@end
@implementation NSObject (Seven)
- (int)seven { return 7; }
@end
"""

USE_OF_CATEGORY = """
#import <Foundation/Foundation.h>
#include <stdio.h>
@interface NSObject (Declared)
- (NSString *)doubled;
- (int)seven;
@end
static NSString *twice = [[@"ab" doubled] copy];
static int seven = [@"ab" seven];
static NSUInteger length = [@"ab" length];
int main() { printf("%s %d %d\\n", [twice UTF8String], seven, (int)length); }
"""


def test_initializers_see_categories_of_files_before_them(build, tmp_path):
    """Loading a category changes method tables of constant strings that have been used before."""
    (tmp_path / "category.mm").write_text(CATEGORY)
    result = run(build(USE_OF_CATEGORY, str(tmp_path / "category.mm")))
    assert (result.returncode, result.stdout) == (0, "abab 7 2\n"), result.stderr


FIRST_MESSAGES = """
import ctypes, json, sys
ctypes.CDLL(sys.argv[1])
runtime = ctypes.CDLL("libobjc.so.4")
runtime.objc_getClass.restype = ctypes.c_void_p
read = lambda address: ctypes.c_void_p.from_address(address).value
without_methods = ctypes.c_void_p.in_dll(runtime, "__objc_uninstalled_dtable").value
def has_methods(name):
    return read(read(runtime.objc_getClass(name.encode())) + 8 * 8) != without_methods  # the metaclass's table
print(json.dumps([name for name in sys.argv[2:] if not has_methods(name)]))
"""


def test_foundation_is_initialized_when_the_library_is_loaded():
    """Threads that send first messages to a class cluster of GNUstep at once crash: openmps/metal/foundation.mm."""
    texts = [path.read_text() for path in (ROOT / "csrc").rglob("*") if path.suffix in (".mm", ".hh")]
    used = sorted({name for text in texts for name in re.findall(r"\[(NS[A-Z]\w+) ", text)})
    assert {"NSMutableArray", "NSMutableDictionary", "NSNumber", "NSString"} <= set(used)
    result = run(sys.executable, "-c", FIRST_MESSAGES, config.lib_dir() / "libopenmps.so", *used)
    # No cluster: the runtime lets other threads wait until it is initialized, which takes 3 ms.
    assert json.loads(result.stdout) == ["NSKeyedArchiver"], result.stderr
