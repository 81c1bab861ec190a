/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stand-in for a header that Open MPI 5.0 does not install: yields of POSIX threads. */
#ifndef PORTOLAN_ABSENT_THREADS_H
#define PORTOLAN_ABSENT_THREADS_H

#include <sched.h>

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

static inline void opal_thread_yield(void)
{
    (void) sched_yield();
}

#endif
