// SPDX-License-Identifier: Apache-2.0
// For tests of memory that runs out: malloc and its like are replaced for the whole program by
// functions that count, fail where they are told to, and call the C library's own. They do not work
// beside a sanitizer, which has replaced malloc already.
#ifndef TESTS_FAILING_MALLOC_H
#define TESTS_FAILING_MALLOC_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_MALLOC_TAKEN 1
#else
#define IS_MALLOC_TAKEN 0

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *ptr);

// Variables are volatile, as the compiler assumes that malloc and free change none.
static thread_local volatile bool is_counting;
static thread_local volatile bool for_good;     // all later allocations fail, too
static thread_local volatile int64_t left;      // allocations until the one that fails
static thread_local volatile int64_t num_alive; // allocated and not freed while counting

// These act on all threads at once, and do not count living allocations. left_anywhere >= 0:
// allocations until the one that fails; below 0: it has failed.
static volatile bool is_failing_anywhere, for_good_anywhere;
static _Atomic int64_t left_anywhere;

// The functions are visible, so that strdup and its like use them as well.
#pragma GCC visibility push(default)
void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *old, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
void free(void *ptr);
#pragma GCC visibility pop

static bool fails(void) {
    if (is_failing_anywhere) {
        const int64_t before = atomic_fetch_sub(&left_anywhere, 1);
        return before == 0 || (before < 0 && for_good_anywhere);
    }
    if (!is_counting)
        return false;
    const int64_t before = left;
    left = before - 1;
    return before == 0 || (before < 0 && for_good);
}

static void *counted(void *ptr) {
    num_alive += is_counting && ptr;
    return ptr;
}

void *malloc(size_t bytes) {
    return fails() ? (errno = ENOMEM, nullptr) : counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes) {
    return fails() ? (errno = ENOMEM, nullptr) : counted(__libc_calloc(count, bytes));
}

void *realloc(void *old, size_t bytes) {
    if (fails()) {
        errno = ENOMEM;
        return nullptr;
    }
    void *ptr = __libc_realloc(old, bytes);
    num_alive += is_counting && ptr && !old;
    return ptr;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? (errno = ENOMEM, nullptr) : counted(__libc_memalign(alignment, bytes));
}

void free(void *ptr) {
    num_alive -= is_counting && ptr;
    __libc_free(ptr);
}

#endif
#endif
