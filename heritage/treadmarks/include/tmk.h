/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of TreadMarks on Portolan: shared memory for the processes of a job.
 *
 * Generated from heritage/treadmarks by cbindgen: do not edit. docs/guide/dsm.md describes its use,
 * docs/reference/heritage.md the choices that were made where the original is unknown. A mistake or
 * a network error is printed on standard error and ends the job. */

#ifndef TMK_H
#define TMK_H

#include <stddef.h>

/**
 * Maximum number of processes.
 */
#define TMK_NPROCS 32

/**
 * Number of locks. They are numbered from 0.
 */
#define TMK_NLOCKS 1024

/**
 * Number of barriers. They are numbered from 0.
 */
#define TMK_NBARRIERS 32

/**
 * Number of conditions of each lock. They are numbered from 0.
 */
#define TMK_NCONDS 32

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Number of this process, from 0. Valid after Tmk_startup(); do not write to it.
 */
extern unsigned int Tmk_proc_id;

/**
 * Number of processes in the job. Valid after Tmk_startup(); do not write to it.
 */
extern unsigned int Tmk_nprocs;

/**
 * Bytes of a page, the unit of sharing. Valid after Tmk_startup(); do not write to it.
 */
extern unsigned int Tmk_page_size;

/**
 * Joins the job that a launcher has started, and waits for all its processes. Call it once in each
 * process, before all other functions. The arguments are those of main(), and are not changed.
 */
void Tmk_startup(int argc, char **argv);

/**
 * Leaves the job, and ends the process with `status`. With status 0 it waits until all processes
 * have called it, and serves them meanwhile. Any other status ends the whole job at once.
 */
void Tmk_exit(int status);

/**
 * Allocates `size` bytes of shared memory. Returns null if this process has none left: each may
 * allocate TMK_HEAP MiB. Other processes use it after they got the pointer by Tmk_distribute() or
 * in shared memory. A block of a page or more begins on a page, so that it shares none.
 */
void *Tmk_malloc(size_t size);

/**
 * Frees a block of Tmk_malloc(), in any process. Null is ignored.
 */
void Tmk_free(void *ptr);

/**
 * Allocates `size` bytes like Tmk_malloc(), for memory that is never freed.
 */
void *Tmk_sbrk(unsigned int size);

/**
 * Copies the global variable of `size` bytes at `ptr` to the same variable of all other processes,
 * and returns when they have it. They may use it after the next synchronisation with this one.
 */
void Tmk_distribute(const void *ptr, int size);

/**
 * Waits until all processes have called it with the same `id`, below TMK_NBARRIERS. Afterwards all
 * earlier writes of all processes are visible.
 */
void Tmk_barrier(unsigned int id);

/**
 * Waits for the lock `id`, below TMK_NLOCKS. Afterwards the process sees all writes that were
 * visible to the process that released it.
 */
void Tmk_lock_acquire(unsigned int id);

/**
 * Releases the lock `id`, which this process holds.
 */
void Tmk_lock_release(unsigned int id);

/**
 * Releases the lock `lock_id`, waits until another process signals the condition `cond_id` of the
 * lock, below TMK_NCONDS, and acquires the lock again.
 */
void Tmk_lock_cond_wait(unsigned int lock_id, unsigned int cond_id);

/**
 * Wakes one process that waits for the condition `cond_id` of the lock `lock_id`, which this
 * process holds.
 */
void Tmk_lock_cond_signal(unsigned int lock_id, unsigned int cond_id);

/**
 * Wakes all processes that wait for the condition `cond_id` of the lock `lock_id`, which this
 * process holds.
 */
void Tmk_lock_cond_broadcast(unsigned int lock_id, unsigned int cond_id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TMK_H */
