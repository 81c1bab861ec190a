/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Error handling shared by the examples: prints the cause and aborts the job. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <portolan.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static inline _Noreturn void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* Returns the result of a call, and aborts the job if the call fails. */
#define MUST(call) must((call), #call)

static inline int must(int result, const char *call) {
    if (result < 0) die("%s: %s", call, portolan_last_error());
    return result;
}

static inline void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) die("no memory for %zu times %zu bytes", count, size);
    return memory;
}

#endif
