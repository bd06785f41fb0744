// SPDX-License-Identifier: Apache-2.0
// Keeps a library that is linked with libstdc++ 12 loadable beside libstdc++ 11, the one of glibc 2.34's time and of
// the tag manylinux_2_34. Of the functions used here, only std::condition_variable::wait has a newer version, which
// supports thread cancellation [libstdc++, src/c++11/compatibility-condvar.cc]; threads are never cancelled here. A
// hidden function of that name calls the older version. tools/check_wheel.py fails if another function needs this.
#include <condition_variable>
#include <mutex>

#if defined(__GLIBCXX__) && defined(__x86_64__)
extern "C" {
void mpscnn_wait_3_4_11(std::condition_variable*, std::unique_lock<std::mutex>*);
[[gnu::visibility("hidden")]] void mpscnn_wait(
    std::condition_variable* condition,
    std::unique_lock<std::mutex>* lock) __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
__asm__(".symver mpscnn_wait_3_4_11, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

void mpscnn_wait(std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  mpscnn_wait_3_4_11(condition, lock);
}
}
#endif
