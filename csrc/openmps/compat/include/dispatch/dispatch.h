// SPDX-License-Identifier: Apache-2.0
// The part of libdispatch that programs around MPS use: semaphores, once, queues, groups. If libdispatch is installed,
// its header is found first and used instead. The functions have their own names in libopenmps.so, so that a process
// can load libdispatch too. GNUstep's Foundation includes this header if it finds it, so nothing of Foundation is used
// here.

#pragma once

#include <stdint.h>

#define dispatch_once openmps_dispatch_once
#define dispatch_time openmps_dispatch_time
#define dispatch_semaphore_create openmps_dispatch_semaphore_create
#define dispatch_semaphore_wait openmps_dispatch_semaphore_wait
#define dispatch_semaphore_signal openmps_dispatch_semaphore_signal
#define dispatch_get_main_queue openmps_dispatch_get_main_queue
#define dispatch_get_global_queue openmps_dispatch_get_global_queue
#define dispatch_queue_create openmps_dispatch_queue_create
#define dispatch_async openmps_dispatch_async
#define dispatch_sync openmps_dispatch_sync
#define dispatch_after openmps_dispatch_after
#define dispatch_main openmps_dispatch_main
#define dispatch_group_create openmps_dispatch_group_create
#define dispatch_group_enter openmps_dispatch_group_enter
#define dispatch_group_leave openmps_dispatch_group_leave
#define dispatch_group_async openmps_dispatch_group_async
#define dispatch_group_wait openmps_dispatch_group_wait

#ifdef __cplusplus
extern "C" {
#endif

typedef void (^dispatch_block_t)(void);
typedef intptr_t dispatch_once_t;
typedef uint64_t dispatch_time_t;  // ns, of the monotonic clock
typedef struct dispatch_queue_s *dispatch_queue_t;
typedef struct dispatch_semaphore_s *dispatch_semaphore_t;
typedef struct dispatch_group_s *dispatch_group_t;
typedef struct dispatch_queue_attr_s *dispatch_queue_attr_t;

#ifndef NSEC_PER_SEC
#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_USEC 1000ull
#define USEC_PER_SEC 1000000ull
#endif
#define DISPATCH_TIME_NOW 0ull
#define DISPATCH_TIME_FOREVER (~0ull)
#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)0)
#define DISPATCH_QUEUE_CONCURRENT ((dispatch_queue_attr_t)1)
#define DISPATCH_QUEUE_PRIORITY_HIGH 2
#define DISPATCH_QUEUE_PRIORITY_DEFAULT 0
#define DISPATCH_QUEUE_PRIORITY_LOW (-2)
#define DISPATCH_QUEUE_PRIORITY_BACKGROUND (-32768)
#define QOS_CLASS_USER_INTERACTIVE 0x21
#define QOS_CLASS_USER_INITIATED 0x19
#define QOS_CLASS_DEFAULT 0x15
#define QOS_CLASS_UTILITY 0x11
#define QOS_CLASS_BACKGROUND 0x09

/// Run the block once; other threads wait until it has returned.
void dispatch_once(dispatch_once_t *token, dispatch_block_t block);

/// Return the time `delta` ns after `when`, which is DISPATCH_TIME_NOW or the result of another call.
dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta);

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value);
/// Return 0, or nonzero after `timeout`.
intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout);
/// Return nonzero if a thread waited.
intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore);

/// Return the main queue. Only dispatch_main() runs its blocks: there is no run loop.
dispatch_queue_t dispatch_get_main_queue(void);
/// Return a queue that runs each block on its own thread, whatever the priority.
dispatch_queue_t dispatch_get_global_queue(intptr_t priority, uintptr_t flags);
dispatch_queue_t dispatch_queue_create(const char *label, dispatch_queue_attr_t attributes);
void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_after(dispatch_time_t when, dispatch_queue_t queue, dispatch_block_t block);
/// Run the main queue's blocks; never return.
void dispatch_main(void) __attribute__((noreturn));

dispatch_group_t dispatch_group_create(void);
void dispatch_group_enter(dispatch_group_t group);
void dispatch_group_leave(dispatch_group_t group);
void dispatch_group_async(dispatch_group_t group, dispatch_queue_t queue, dispatch_block_t block);
/// Return 0, or nonzero after `timeout`.
intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout);

/// Queues, semaphores and groups are never freed.
#define dispatch_retain(object) ((void)(object))
#define dispatch_release(object) ((void)(object))

#ifdef __cplusplus
}
#endif
