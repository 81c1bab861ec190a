/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of GAMMA, the Genoa Active Message MAchine, on Portolan.
 *
 * Generated from heritage/gamma by cbindgen: do not edit. docs/reference/gamma.md names the choices
 * that were made where the original is unknown. Every function except gamma_time() and
 * gamma_time_diff() returns a negative number on error, and gamma_last_error() returns the cause.
 */

#ifndef GAMMA_H
#define GAMMA_H

#include <stddef.h>
#include <stdint.h>

/**
 * gamma_init() was not called.
 */
#define GAMMA_ERR_NOT_INITIALISED -1

/**
 * gamma_exit() was called.
 */
#define GAMMA_ERR_EXITED -2

/**
 * gamma_init() was called before.
 */
#define GAMMA_ERR_ALREADY -3

/**
 * The processes could not be started, or their number is wrong.
 */
#define GAMMA_ERR_LAUNCH -4

/**
 * A required pointer is null.
 */
#define GAMMA_ERR_NULL -5

/**
 * An argument is out of range.
 */
#define GAMMA_ERR_ARGUMENT -6

/**
 * The node does not exist in this group.
 */
#define GAMMA_ERR_NODE -7

/**
 * The parallel PID is that of another group.
 */
#define GAMMA_ERR_PAR_PID -8

/**
 * The port was not set.
 */
#define GAMMA_ERR_PORT -9

/**
 * The function cannot be called from a handler.
 */
#define GAMMA_ERR_IN_HANDLER -10

/**
 * A handler reported an error, or a message was longer than its buffer.
 */
#define GAMMA_ERR_SIGNALLED -11

/**
 * A node has failed or exited, or cannot be reached.
 */
#define GAMMA_ERR_NODE_GONE -12

/**
 * A system call failed.
 */
#define GAMMA_ERR_SYSTEM -13

/**
 * Internal error of the library.
 */
#define GAMMA_ERR_INTERNAL -14

/**
 * This process was forked after its parent had called gamma_init(). The group belongs to the
 * parent.
 */
#define GAMMA_ERR_FORKED -15

/**
 * Another error of the network.
 */
#define GAMMA_ERR_OTHER -99

/**
 * After each message, the next one is written to the start of the buffer.
 */
#define GO_BACK 0

/**
 * After each message, the next one is written behind it.
 */
#define GO_FORTH 1

/**
 * A receive handler.
 */
typedef void (*gamma_handler_t)(void);

/**
 * A time in nanoseconds since an arbitrary start.
 */
typedef uint64_t gamma_time_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * In a handler: the port whose message is complete.
 */
extern uint16_t gamma_active_port;

/**
 * In a handler: length of the message in bytes. It exceeds the buffer's length if the buffer was
 * too short.
 */
extern unsigned long gamma_msglen;

/**
 * Returns a description of the last error of this thread. It is one sentence. Not in the original.
 */
const char *gamma_last_error(void);

/**
 * Starts the parallel section as one of `num_nodes` processes; 0 stands for the number of
 * processes that were started. All processes of the job must call this.
 *
 * If more processes were started, consecutive ranks that request the same number form a group,
 * and the following ranks form further groups. In a group that requests 0, all remaining ranks are
 * nodes.
 *
 * A process that was started by `portolan run` or another launcher joins the group. A process that
 * was started alone, for more than one node, is replaced by `portolan run -n NUM_NODES` of the
 * same program with the same arguments. All processes then start from the beginning, so everything
 * before this call runs again.
 *
 * Errors: GAMMA_ERR_LAUNCH, GAMMA_ERR_ALREADY, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
 * GAMMA_ERR_SYSTEM.
 */
int gamma_init(unsigned char num_nodes, int argc, char **argv);

/**
 * Ends the parallel section after all sent messages have arrived, however long their receivers
 * take, unless these fail. The program owns its buffers again.
 */
int gamma_exit(void);

/**
 * Ends all processes of the job, including this one and those of other groups. Returns only if it
 * is called outside of the parallel section.
 */
int gamma_abort(void);

/**
 * Binds `port` to port `dest_port` of node `dest_node` for sending, in the group of this process or
 * another one with the parallel PID `dest_par_pid`. Arms `buf` for receiving.
 * `handler` runs for each message. `semaphore` is signalled when the handler returns without a
 * call of gamma_signal() or gamma_sigerr(). Setting a port again changes its binding and arms one
 * more buffer.
 *
 * Errors: GAMMA_ERR_NODE, GAMMA_ERR_PAR_PID, GAMMA_ERR_ARGUMENT, GAMMA_ERR_NULL,
 * GAMMA_ERR_IN_HANDLER.
 */
int gamma_set_active_port(uint16_t port,
                          uint16_t dest_node,
                          unsigned char dest_par_pid,
                          uint16_t dest_port,
                          gamma_handler_t handler,
                          uint16_t semaphore,
                          unsigned char buffer_kind,
                          void *buf,
                          unsigned long len);

/**
 * Sets a port as gamma_set_active_port() does, without a handler: each message signals the
 * semaphore.
 *
 * Errors: those of gamma_set_active_port().
 */
int gamma_set_passive_port(uint16_t port,
                           uint16_t dest_node,
                           unsigned char dest_par_pid,
                           uint16_t dest_port,
                           uint16_t semaphore,
                           unsigned char buffer_kind,
                           void *buf,
                           unsigned long len);

/**
 * Arms the next receive buffer of `port`. Several buffers may be armed; each receives one message.
 * Handlers may call it.
 *
 * Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL.
 */
int gamma_post_recv(uint16_t port, void *buf, unsigned long len);

/**
 * Lets the handler of `port` run on a thread of the library while the program computes, as GAMMA's
 * handlers ran when a message arrived. It takes effect once it has been called for every port with
 * a handler. From then on, the program may use the handlers' data only within gamma_atomic(), and
 * waits do not sleep. Not in the original.
 *
 * Errors: GAMMA_ERR_PORT, GAMMA_ERR_SYSTEM, GAMMA_ERR_IN_HANDLER.
 */
int gamma_handle_at_once(uint16_t port);

/**
 * Sends `len` bytes through `port`. They may be reused when it returns. In a handler they are
 * copied, and leave after the handler has returned.
 *
 * Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL, GAMMA_ERR_NODE_GONE.
 */
int gamma_send(uint16_t port, const void *buf, unsigned long len);

/**
 * Sends a message as gamma_send() does, with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_flowctl(uint16_t port, const void *buf, unsigned long len);

/**
 * Sends two pieces as one message, as gamma_send() does.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_2p(uint16_t port,
                  const void *buf1,
                  unsigned long len1,
                  const void *buf2,
                  unsigned long len2);

/**
 * Sends two pieces as gamma_send_2p() does, with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_2p_flowctl(uint16_t port,
                          const void *buf1,
                          unsigned long len1,
                          const void *buf2,
                          unsigned long len2);

/**
 * Starts a nonblocking send through `port`, without a copy. The bytes must not be changed until
 * gamma_wsend() or gamma_tsend() reports that the port's sends are complete.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend(uint16_t port, const void *buf, unsigned long len);

/**
 * Starts a nonblocking send like gamma_isend(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_flowctl(uint16_t port, const void *buf, unsigned long len);

/**
 * Starts a nonblocking send of two pieces as one message, like gamma_isend(). They are not copied
 * if the message must wait or needs a rendezvous. Neither may be changed until gamma_wsend() or
 * gamma_tsend() reports that the port's sends are complete.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_2p(uint16_t port,
                   const void *buf1,
                   unsigned long len1,
                   const void *buf2,
                   unsigned long len2);

/**
 * Starts a nonblocking send of two pieces like gamma_isend_2p(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_2p_flowctl(uint16_t port,
                           const void *buf1,
                           unsigned long len1,
                           const void *buf2,
                           unsigned long len2);

/**
 * Waits until all non-blocking sends through `port` are complete. An error belongs to one of the
 * sends; call it again for the rest.
 *
 * Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_PORT, GAMMA_ERR_IN_HANDLER.
 */
int gamma_wsend(uint16_t port);

/**
 * Returns 1 if all non-blocking sends through `port` are complete, or 0. Makes progress.
 *
 * Errors: those of gamma_wsend().
 */
int gamma_tsend(uint16_t port);

/**
 * Notifies the program, with a semaphore, that a message has arrived. Handlers and the program may
 * call it.
 */
int gamma_signal(uint16_t semaphore);

/**
 * Notifies the program of an error: one call of gamma_wait() or gamma_test() returns
 * GAMMA_ERR_SIGNALLED.
 */
int gamma_sigerr(uint16_t semaphore);

/**
 * Waits until `count` signals of a semaphore were collected, and runs handlers in the meantime.
 * Messages in buffers that are armed again automatically stay valid until the program waits for
 * this semaphore again, or tests it.
 *
 * Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
 */
int gamma_wait(uint16_t semaphore, uint32_t count);

/**
 * Collects a signal of a semaphore. Returns 1, or 0 if there is none. Makes progress.
 *
 * Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
 */
int gamma_test(uint16_t semaphore);

/**
 * Runs `section` while no other thread is in the library. No handler runs either, unless the
 * section calls a function that makes progress.
 */
int gamma_atomic(void (*section)(void));

/**
 * Returns the index of this process in its group, from 0.
 */
int gamma_my_node(void);

/**
 * Returns the number of processes in the group.
 */
int gamma_how_many_nodes(void);

/**
 * Returns the parallel PID of the group, from 1 to 255.
 */
int gamma_my_par_pid(void);

/**
 * Returns the number of groups in the job. Not in the original.
 */
int gamma_how_many_groups(void);

/**
 * Returns the parallel PID of group `group`; groups are numbered from 0 in the order of their
 * ranks. Not in the original.
 *
 * Errors: GAMMA_ERR_ARGUMENT.
 */
int gamma_group_par_pid(int group);

/**
 * Returns the number of nodes in the group with a parallel PID. Not in the original.
 *
 * Errors: GAMMA_ERR_PAR_PID.
 */
int gamma_group_nodes(unsigned char par_pid);

/**
 * Waits until every process of the group has called it. Several threads may call it concurrently:
 * the barriers of a process run one after the other, and its other threads continue.
 *
 * Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_IN_HANDLER.
 */
int gamma_sync(void);

/**
 * Copies `len` bytes of node `root` to `buf` of all other nodes, which must pass the same length.
 * Several threads may call it concurrently: the broadcasts of a process run one after the other,
 * and its other threads continue.
 *
 * Broadcasts of 2 KiB or more to 3 to 64 processes on at least three hosts of one IPv4 network
 * use UDP multicast: the data crosses the root's wire once, and the root waits until all hosts
 * have it. PORTOLAN_MULTICAST in the environment sets another length, which must be at least 1K
 * (1024). With `off`, all broadcasts use messages, as shorter ones do.
 *
 * Errors: GAMMA_ERR_NODE, GAMMA_ERR_NODE_GONE, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
 * GAMMA_ERR_IN_HANDLER.
 */
int gamma_broadcast(uint16_t root, void *buf, unsigned long len);

/**
 * Locks memory, as far as the system's limits allow. Unlocked memory only costs speed.
 *
 * Errors: GAMMA_ERR_NULL; GAMMA_ERR_SYSTEM when the memory is not mapped.
 */
int gamma_mlock(const void *buf, unsigned long len);

/**
 * Unlocks memory.
 *
 * Errors: GAMMA_ERR_NULL, GAMMA_ERR_SYSTEM.
 */
int gamma_munlock(const void *buf, unsigned long len);

/**
 * Unlocks all memory of the process.
 *
 * Errors: GAMMA_ERR_SYSTEM.
 */
int gamma_munlockall(void);

/**
 * Returns the current time of a monotonic clock. Works outside of the parallel section, too.
 */
gamma_time_t gamma_time(void);

/**
 * Returns the microseconds from `begin` to `end`.
 */
double gamma_time_diff(gamma_time_t end, gamma_time_t begin);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GAMMA_H */
