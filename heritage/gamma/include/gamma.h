/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of GAMMA, the Genoa Active Message MAchine, on Portolan.
 *
 * Generated from heritage/gamma by cbindgen: do not edit. docs/gamma.md describes each function,
 * and names the choices that were made where the original is unknown. Every function except
 * gamma_time() and gamma_time_diff() returns a negative number on error, and gamma_last_error()
 * returns the cause.
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
 * The processes could not be started, or not so many.
 */
#define GAMMA_ERR_LAUNCH -4

/**
 * A pointer that is needed is null.
 */
#define GAMMA_ERR_NULL -5

/**
 * An argument is out of its range.
 */
#define GAMMA_ERR_ARGUMENT -6

/**
 * There is no such node in this group.
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
 * This function cannot be called from a handler.
 */
#define GAMMA_ERR_IN_HANDLER -10

/**
 * A handler reported an error, or a message was longer than its buffer.
 */
#define GAMMA_ERR_SIGNALLED -11

/**
 * A node is gone, or cannot be reached.
 */
#define GAMMA_ERR_NODE_GONE -12

/**
 * The system refused something.
 */
#define GAMMA_ERR_SYSTEM -13

/**
 * The library has a bug.
 */
#define GAMMA_ERR_INTERNAL -14

/**
 * This process was forked after its parent had called gamma_init(); the group is the parent's.
 */
#define GAMMA_ERR_FORKED -15

/**
 * Another error of the network.
 */
#define GAMMA_ERR_OTHER -99

/**
 * After each message, the next one goes to the start of the buffer.
 */
#define GO_BACK 0

/**
 * After each message, the next one goes behind it.
 */
#define GO_FORTH 1

/**
 * A receiver handler.
 */
typedef void (*gamma_handler_t)(void);

/**
 * A moment, in nanoseconds since some moment before.
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
 * In a handler: bytes of the message; more than the buffer has if it was too short.
 */
extern unsigned long gamma_msglen;

/**
 * Why the last function that failed on this thread did so: one sentence. Not in the original.
 */
const char *gamma_last_error(void);

/**
 * Begins the parallel section as one of `num_nodes` processes; 0 is as many as were started.
 *
 * A process that `portolan run` or another launcher has started joins the others. One that was
 * started alone, for more than one node, is replaced by `portolan run -n NUM_NODES` of the same
 * program with the same arguments: it begins anew, as all of them do, and what it did before is
 * done again.
 *
 * Errors: GAMMA_ERR_LAUNCH, GAMMA_ERR_ALREADY, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
 * GAMMA_ERR_SYSTEM.
 */
int gamma_init(unsigned char num_nodes, int argc, char **argv);

/**
 * Ends the parallel section after all that was sent has arrived, however long its receivers take,
 * while they live; buffers are the program's again.
 */
int gamma_exit(void);

/**
 * Ends all processes of the group, this one included. Does not return, unless it is called outside
 * of the parallel section.
 */
int gamma_abort(void);

/**
 * Binds `port` to port `dest_port` of node `dest_node` for sending, and arms `buf` for receiving:
 * for each message, `handler` runs. `semaphore` is signalled when it returns without a call of
 * gamma_signal() or gamma_sigerr(). A port may be set again, which binds it anew and arms one more
 * buffer.
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
 * As gamma_set_active_port(), without a handler: each message signals the semaphore.
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
 * Arms the next receive buffer of `port`. Several may be armed; each takes one message. Handlers
 * may call it.
 *
 * Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL.
 */
int gamma_post_recv(uint16_t port, void *buf, unsigned long len);

/**
 * Sends `len` bytes through `port`; when it returns, they may be used again. In a handler they are
 * copied, and leave when it has returned.
 *
 * Errors: GAMMA_ERR_PORT, GAMMA_ERR_NULL, GAMMA_ERR_NODE_GONE.
 */
int gamma_send(uint16_t port, const void *buf, unsigned long len);

/**
 * As gamma_send(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_flowctl(uint16_t port, const void *buf, unsigned long len);

/**
 * As gamma_send(), of two pieces as one message.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_2p(uint16_t port,
                  const void *buf1,
                  unsigned long len1,
                  const void *buf2,
                  unsigned long len2);

/**
 * As gamma_send_2p(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_send_2p_flowctl(uint16_t port,
                          const void *buf1,
                          unsigned long len1,
                          const void *buf2,
                          unsigned long len2);

/**
 * Begins to send through `port`, without a copy. The bytes must stay as they are until
 * gamma_wsend() or gamma_tsend() says that the port's sends are complete.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend(uint16_t port, const void *buf, unsigned long len);

/**
 * As gamma_isend(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_flowctl(uint16_t port, const void *buf, unsigned long len);

/**
 * As gamma_isend(), of two pieces as one message, without a copy where it must ask or wait: both must stay as they are
 * until gamma_wsend() or gamma_tsend() says that the port's sends are complete.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_2p(uint16_t port,
                   const void *buf1,
                   unsigned long len1,
                   const void *buf2,
                   unsigned long len2);

/**
 * As gamma_isend_2p(), with flow control.
 *
 * Errors: those of gamma_send().
 */
int gamma_isend_2p_flowctl(uint16_t port,
                           const void *buf1,
                           unsigned long len1,
                           const void *buf2,
                           unsigned long len2);

/**
 * Waits until all non-blocking sends through `port` are complete. A failure is that of one of
 * them; call it again for the others.
 *
 * Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_PORT, GAMMA_ERR_IN_HANDLER.
 */
int gamma_wsend(uint16_t port);

/**
 * Whether all non-blocking sends through `port` are complete: 1 or 0. Makes progress.
 *
 * Errors: those of gamma_wsend().
 */
int gamma_tsend(uint16_t port);

/**
 * Tells the program, through a semaphore, that a message has arrived. Handlers call it, and the
 * program may.
 */
int gamma_signal(uint16_t semaphore);

/**
 * Tells the program that something went wrong: one gamma_wait() or gamma_test() returns
 * GAMMA_ERR_SIGNALLED.
 */
int gamma_sigerr(uint16_t semaphore);

/**
 * Waits until `count` signals have been collected from a semaphore, and runs handlers meanwhile.
 * What the messages left in buffers that are armed again by themselves is the program's until it
 * waits for this semaphore again, or tests it.
 *
 * Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
 */
int gamma_wait(uint16_t semaphore, uint32_t count);

/**
 * Collects a signal from a semaphore if there is one: 1, or 0 when there is none. Makes progress.
 *
 * Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
 */
int gamma_test(uint16_t semaphore);

/**
 * Runs `section` while no other thread is in the library and so, unless the section itself calls
 * one that lets messages in, no handler runs.
 */
int gamma_atomic(void (*section)(void));

/**
 * Index of this process in its group, from 0.
 */
int gamma_my_node(void);

/**
 * Processes of the group.
 */
int gamma_how_many_nodes(void);

/**
 * Parallel PID of the group, from 1 to 255.
 */
int gamma_my_par_pid(void);

/**
 * Waits until every process of the group has come here. Threads may call it at once: the barriers
 * of a process are made one after the other, and its other threads go on meanwhile.
 *
 * Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_IN_HANDLER.
 */
int gamma_sync(void);

/**
 * Copies `len` bytes of node `root` into `buf` of all others, which must give the same length.
 * Threads may call it at once: the broadcasts of a process are made one after the other, and its
 * other threads go on meanwhile.
 *
 * 32 KiB or more to 3 to 64 processes on three hosts or more of one IPv4 network go once over the
 * root's wire, by UDP multicast, where all hosts hear it, and the root waits until all have them.
 * PORTOLAN_MULTICAST=off in the environment keeps them to messages, as shorter ones.
 *
 * Errors: GAMMA_ERR_NODE, GAMMA_ERR_NODE_GONE, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
 * GAMMA_ERR_IN_HANDLER.
 */
int gamma_broadcast(uint16_t root, void *buf, unsigned long len);

/**
 * Locks memory, as far as the system allows; beyond that, nothing is lost but speed.
 *
 * Errors: GAMMA_ERR_NULL; GAMMA_ERR_SYSTEM when there is no memory.
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
 * The time now, of a clock that only goes forward. Works outside of the parallel section, too.
 */
gamma_time_t gamma_time(void);

/**
 * Microseconds from `begin` to `end`.
 */
double gamma_time_diff(gamma_time_t end, gamma_time_t begin);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GAMMA_H */
