/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stand-in for a header that Open MPI 5.0 does not install: mutexes and conditions of POSIX threads.
 *
 * The sizes of the types must be those of Open MPI, because they are parts of its lists. The functions are only
 * those that its other headers call. */
#ifndef PORTOLAN_ABSENT_MUTEX_H
#define PORTOLAN_ABSENT_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"

#if OPAL_ENABLE_DEBUG
#error "this Open MPI was built for debugging and lacks opal/mca/threads/pthreads: install it --with-devel-headers"
#endif

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

/* Returns 0 if the mutex was locked. */
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex)
{
    return 0 != pthread_mutex_trylock(mutex);
}

static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_lock(mutex);
}

static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_unlock(mutex);
}

static inline void opal_thread_internal_cond_wait(opal_thread_internal_cond_t *condition,
                                                  opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_cond_wait(condition, mutex);
}

static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_signal(condition);
}

#endif
