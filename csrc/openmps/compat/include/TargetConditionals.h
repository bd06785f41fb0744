// SPDX-License-Identifier: Apache-2.0
// The Apple system that a program is compiled for: macOS, because openmps provides Metal for desktop programs.

#pragma once

#define TARGET_OS_MAC 1
#define TARGET_OS_OSX 1
#define TARGET_OS_IPHONE 0
#define TARGET_OS_IOS 0
#define TARGET_OS_TV 0
#define TARGET_OS_WATCH 0
#define TARGET_OS_VISION 0
#define TARGET_OS_MACCATALYST 0
#define TARGET_OS_SIMULATOR 0
#define TARGET_IPHONE_SIMULATOR 0
#define TARGET_OS_LINUX 1
#ifdef __x86_64__
#define TARGET_CPU_X86_64 1
#else
#define TARGET_CPU_X86_64 0
#endif
#ifdef __aarch64__
#define TARGET_CPU_ARM64 1
#else
#define TARGET_CPU_ARM64 0
#endif
