/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of Myricom's GM on Portolan.
 *
 * Generated from heritage/gm by cbindgen: do not edit. docs/heritage.md describes each function,
 * and names the choices that were made where the original is unknown. */

#ifndef GM_H
#define GM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Version 1.0 of the interface.
 */
#define GM_API_VERSION_1_0 256

/**
 * Version 1.1 of the interface.
 */
#define GM_API_VERSION_1_1 257

/**
 * Version 1.2 of the interface.
 */
#define GM_API_VERSION_1_2 258

/**
 * Version 1.3 of the interface.
 */
#define GM_API_VERSION_1_3 259

/**
 * Version 1.4 of the interface.
 */
#define GM_API_VERSION_1_4 260

/**
 * Version 1.5 of the interface.
 */
#define GM_API_VERSION_1_5 261

/**
 * Version 1.6 of the interface.
 */
#define GM_API_VERSION_1_6 262

/**
 * Version 2.0 of the interface.
 */
#define GM_API_VERSION_2_0 512

/**
 * Version 2.0.6 of the interface.
 */
#define GM_API_VERSION_2_0_6 131078

/**
 * Version 2.0.16 of the interface.
 */
#define GM_API_VERSION_2_0_16 131088

/**
 * The latest version.
 */
#define GM_API_VERSION 131088

/**
 * Bytes of a host's name, with the zero at its end.
 */
#define GM_MAX_HOST_NAME_LEN 128

/**
 * Bytes of a port's name, with the zero at its end.
 */
#define GM_MAX_PORT_NAME_LEN 32

/**
 * No node has this number; they begin at 1.
 */
#define GM_NO_SUCH_NODE_ID 0

/**
 * For ordinary messages.
 */
#define GM_LOW_PRIORITY 0

/**
 * For messages that must not wait behind ordinary ones.
 */
#define GM_HIGH_PRIORITY 1

/**
 * Priorities.
 */
#define GM_NUM_PRIORITIES 2

/**
 * What the hardware's remote accesses were multiples of; here there is no such rule.
 */
#define GM_RDMA_GRANULARITY 64

/**
 * The same of its accesses to memory.
 */
#define GM_MAX_DMA_GRANULARITY 8

/**
 * Success.
 */
#define GM_SUCCESS 0

/**
 * Failure.
 */
#define GM_FAILURE 1

/**
 * The input buffer is too small.
 */
#define GM_INPUT_BUFFER_TOO_SMALL 2

/**
 * The output buffer is too small.
 */
#define GM_OUTPUT_BUFFER_TOO_SMALL 3

/**
 * Try again.
 */
#define GM_TRY_AGAIN 4

/**
 * The port is taken.
 */
#define GM_BUSY 5

/**
 * Memory of the receiver was not registered.
 */
#define GM_MEMORY_FAULT 6

/**
 * Interrupted.
 */
#define GM_INTERRUPTED 7

/**
 * An argument is out of its range.
 */
#define GM_INVALID_PARAMETER 8

/**
 * There is no memory.
 */
#define GM_OUT_OF_MEMORY 9

/**
 * No such command.
 */
#define GM_INVALID_COMMAND 10

/**
 * The receiver has not called gm_allow_remote_memory_access().
 */
#define GM_PERMISSION_DENIED 11

/**
 * The library has a bug.
 */
#define GM_INTERNAL_ERROR 12

/**
 * The port was closed, or never opened.
 */
#define GM_UNATTACHED 13

/**
 * The device is not supported.
 */
#define GM_UNSUPPORTED_DEVICE 14

/**
 * The receiver provided no buffer of this size and priority in time.
 */
#define GM_SEND_TIMED_OUT 15

/**
 * The receiver does not accept this size: gm_set_acceptable_sizes().
 */
#define GM_SEND_REJECTED 16

/**
 * The port is not open at the receiver.
 */
#define GM_SEND_TARGET_PORT_CLOSED 17

/**
 * There is no such node, or it is gone.
 */
#define GM_SEND_TARGET_NODE_UNREACHABLE 18

/**
 * The program has called gm_drop_sends().
 */
#define GM_SEND_DROPPED 19

/**
 * The sending port was closed.
 */
#define GM_SEND_PORT_CLOSED 20

/**
 * The node id is not set yet.
 */
#define GM_NODE_ID_NOT_YET_SET 21

/**
 * Still shutting down.
 */
#define GM_STILL_SHUTTING_DOWN 22

/**
 * The clone is busy.
 */
#define GM_CLONE_BUSY 23

/**
 * There is no such unit.
 */
#define GM_NO_SUCH_DEVICE 24

/**
 * Aborted.
 */
#define GM_ABORTED 25

/**
 * The program was made for a later version.
 */
#define GM_INCOMPATIBLE_LIB_AND_DRIVER 26

/**
 * An error of the system.
 */
#define GM_UNTRANSLATED_SYSTEM_ERROR 27

/**
 * Access denied.
 */
#define GM_ACCESS_DENIED 28

/**
 * The driver does not support it.
 */
#define GM_NO_DRIVER_SUPPORT 29

/**
 * Too many references to a page.
 */
#define GM_PTE_REF_CNT_OVERFLOW 30

/**
 * Not supported in the kernel.
 */
#define GM_NOT_SUPPORTED_IN_KERNEL 31

/**
 * Not supported on this architecture.
 */
#define GM_NOT_SUPPORTED_ON_ARCH 32

/**
 * No match.
 */
#define GM_NO_MATCH 33

/**
 * An error of the program.
 */
#define GM_USER_ERROR 34

/**
 * Timed out.
 */
#define GM_TIMED_OUT 35

/**
 * The data are corrupted.
 */
#define GM_DATA_CORRUPTED 36

/**
 * A fault of the hardware.
 */
#define GM_HARDWARE_FAULT 37

/**
 * The send was orphaned.
 */
#define GM_SEND_ORPHANED 38

/**
 * A number is too large.
 */
#define GM_MINOR_OVERFLOW 39

/**
 * The page table is full.
 */
#define GM_PAGE_TABLE_FULL 40

/**
 * An error of the unit controller.
 */
#define GM_UC_ERROR 41

/**
 * Ports are 0 to 7.
 */
#define GM_INVALID_PORT_NUMBER 42

/**
 * The device was not found.
 */
#define GM_DEV_NOT_FOUND 43

/**
 * The firmware does not run.
 */
#define GM_FIRMWARE_NOT_RUNNING 44

/**
 * No entry with that key.
 */
#define GM_YP_NO_MATCH 45

/**
 * A parity error.
 */
#define GM_SRAM_PARITY_ERROR 46

/**
 * The firmware was aborted.
 */
#define GM_FIRMWARE_ABORT 47

/**
 * Nothing has happened.
 */
#define GM_NO_RECV_EVENT 0

/**
 * An alarm is due: gm_unknown() calls its function.
 */
#define GM_ALARM_EVENT 2

/**
 * A send has ended: gm_unknown() calls its function.
 */
#define GM_SENT_EVENT 3

/**
 * The program has sent without a token; nothing was sent.
 */
#define GM_SEND_TOKEN_VIOLATION_EVENT 7

/**
 * The program has provided a buffer without a token; it was not taken.
 */
#define GM_RECV_TOKEN_VIOLATION_EVENT 8

/**
 * A message has filled a buffer.
 */
#define GM_RECV_EVENT 11

/**
 * The same with high priority.
 */
#define GM_HIGH_RECV_EVENT 12

/**
 * A message from a port with the same number.
 */
#define GM_PEER_RECV_EVENT 13

/**
 * The same with high priority.
 */
#define GM_HIGH_PEER_RECV_EVENT 14

/**
 * A short message that lies at `message`; its buffer was not used.
 */
#define GM_FAST_RECV_EVENT 15

/**
 * The same with high priority.
 */
#define GM_FAST_HIGH_RECV_EVENT 16

/**
 * The same from a port with the same number.
 */
#define GM_FAST_PEER_RECV_EVENT 17

/**
 * The same with high priority.
 */
#define GM_FAST_HIGH_PEER_RECV_EVENT 18

/**
 * Of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are copied when they are sent.
 */
#define GM_PLUS_INLINE 1

/**
 * Of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are not acknowledged.
 */
#define GM_PLUS_UNACKNOWLEDGED 2

/**
 * Bytes of the longest message that the options of GM+ are for.
 */
#define GM_PLUS_LEN_MAX 256

/**
 * A hash table.
 */
typedef struct gm_hash gm_hash;

/**
 * A lookaside list.
 */
typedef struct gm_lookaside gm_lookaside;

/**
 * A set of marks.
 */
typedef struct gm_mark_set gm_mark_set;

/**
 * A lock.
 */
typedef struct gm_mutex gm_mutex;

/**
 * A port of this process's node.
 */
typedef struct gm_port gm_port;

/**
 * How something ended.
 */
typedef int gm_status_t;

/**
 * A length.
 */
typedef unsigned long gm_size_t;

/**
 * What a message, or anything else, has brought. Read the fields with gm_ntoh_u8() and its relatives.
 */
typedef struct gm_recv_event_fields {
  /**
   * Of a short message: where it lies.
   */
  uint64_t message;
  /**
   * The buffer that it has filled or used.
   */
  uint64_t buffer;
  /**
   * Bytes.
   */
  uint32_t length;
  /**
   * Who has sent it.
   */
  uint16_t sender_node_id;
  /**
   * The tag that the buffer was provided with.
   */
  uint8_t tag;
  /**
   * The size of the message and the buffer.
   */
  uint8_t size;
  /**
   * The port that has sent it.
   */
  uint8_t sender_port_id;
  /**
   * What has happened.
   */
  uint8_t type;
} gm_recv_event_fields;

/**
 * What has happened at a port.
 */
typedef union gm_recv_event {
  /**
   * The fields; all of them of a message, the type alone of other events.
   */
  struct gm_recv_event_fields recv;
} gm_recv_event;

/**
 * What the library calls when a send has ended.
 */
typedef void (*gm_send_completion_callback_t)(struct gm_port *port,
                                              void *context,
                                              gm_status_t status);

/**
 * An address in the memory of another process.
 */
typedef uint64_t gm_remote_ptr_t;

/**
 * An alarm; the fields are the library's.
 */
typedef struct gm_alarm {
  /**
   * The number of the last time that it was set; 0 before the first, and after it was cancelled.
   */
  uint64_t number;
  /**
   * For later.
   */
  uint64_t reserved[3];
} gm_alarm;

/**
 * What an alarm calls.
 */
typedef void (*gm_alarm_callback_t)(void *context);

/**
 * Whether two keys are different: 0 if they are equal.
 */
typedef long (*gm_hash_compare_t)(void *key1, void *key2);

/**
 * A number of a key, the same for equal ones.
 */
typedef unsigned long (*gm_hash_function_t)(void *key);

/**
 * A mark; the field is the library's.
 */
typedef struct gm_mark_t {
  uint64_t number;
} gm_mark_t;

/**
 * What has happened at a port.
 */
typedef union gm_recv_event gm_recv_event_t;

/**
 * A port of this process's node.
 */
typedef struct gm_port gm_port_t;

/**
 * An alarm.
 */
typedef struct gm_alarm gm_alarm_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A status in words; never null.
 */
const char *gm_strerror(gm_status_t status);

/**
 * Why the last function that failed on this thread did so: one sentence. Not in the original.
 */
const char *gm_last_error(void);

/**
 * A byte of an event.
 */
uint8_t gm_ntoh_u8(uint8_t value);

/**
 * A number of an event.
 */
uint16_t gm_ntoh_u16(uint16_t value);

/**
 * A number of an event.
 */
uint32_t gm_ntoh_u32(uint32_t value);

/**
 * An address of an event.
 */
void *gm_ntohp(uint64_t value);

/**
 * Copies the `length` bytes of a short message to its buffer, which it returns.
 */
void *gm_memorize_message(const void *message, void *buffer, unsigned int length);

/**
 * The smallest size of messages of `length` bytes: 2 to the power of it is at least `length` + 8.
 */
unsigned int gm_min_size_for_length(gm_size_t length);

/**
 * Bytes of the longest message of `size`: 2 to the power of it, less 8.
 */
gm_size_t gm_max_length_for_size(unsigned int size);

/**
 * Begins with GM: joins the job. May be called more than once; gm_finalize() as often.
 *
 * Errors: GM_FAILURE when the job cannot be joined, GM_ACCESS_DENIED in a child that was forked.
 */
gm_status_t gm_init(void);

/**
 * Ends what one gm_init() has begun; the last one closes all ports. The job is left when the process
 * ends.
 */
void gm_finalize(void);

/**
 * Opens port `port_id` of unit 0 of this process's node; the handle goes to `port`. `name`, up to 31
 * characters, is for people. `version` is the one that the program was written for.
 *
 * Errors: GM_BUSY when the port is open or one of 0, 1 and 3; GM_INVALID_PORT_NUMBER,
 * GM_NO_SUCH_DEVICE, GM_INVALID_PARAMETER, GM_INCOMPATIBLE_LIB_AND_DRIVER; those of gm_init().
 */
gm_status_t gm_open(struct gm_port **port,
                    unsigned int unit,
                    unsigned int port_id,
                    const char *name,
                    unsigned int version);

/**
 * Closes a port: its buffers are the program's again, and its callbacks are not called any more.
 * Messages that come from now on fail with GM_SEND_TARGET_PORT_CLOSED.
 */
void gm_close(struct gm_port *port);

/**
 * Sets the options of GM+: GM_PLUS_INLINE, GM_PLUS_UNACKNOWLEDGED, both or 0. Not in the original,
 * whose GM+ was built with or without them.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_set_port_options(struct gm_port *port, unsigned int options);

/**
 * The number of a port; 0 if it is none.
 */
unsigned int gm_get_port_id(const struct gm_port *port);

/**
 * Ports of a node: 8.
 */
unsigned int gm_num_ports(const struct gm_port *_port);

/**
 * Send tokens that a program has when it has opened a port.
 */
unsigned int gm_num_send_tokens(const struct gm_port *_port);

/**
 * Receive tokens that a program has when it has opened a port.
 */
unsigned int gm_num_receive_tokens(const struct gm_port *_port);

/**
 * Bytes of the longest datagram: 4096.
 */
unsigned int gm_mtu(const struct gm_port *_port);

/**
 * The smallest size of a message: 3, which has no bytes.
 */
unsigned int gm_min_message_size(const struct gm_port *_port);

/**
 * Takes a send token of `priority` that the program has put in the bank: 1, or 0 when there is none.
 */
int gm_alloc_send_token(struct gm_port *port,
                        unsigned int priority);

/**
 * Puts a send token of `priority` in the bank, which is empty at first.
 */
void gm_free_send_token(struct gm_port *port, unsigned int priority);

/**
 * Puts `count` send tokens of `priority` in the bank.
 */
void gm_free_send_tokens(struct gm_port *port, unsigned int priority, unsigned int count);

/**
 * Returns 1 if gm_alloc_send_token() would return 1, and 0 otherwise.
 */
int gm_send_token_available(struct gm_port *port, unsigned int priority);

/**
 * Provides a buffer of gm_max_length_for_size(`size`) bytes for one message of that size and priority.
 * It is the library's until an event names it. Its event has `tag`, a byte. Takes a receive token; when
 * there is none, the port gets a GM_RECV_TOKEN_VIOLATION_EVENT and the buffer is not taken.
 */
void gm_provide_receive_buffer_with_tag(struct gm_port *port,
                                        void *ptr,
                                        unsigned int size,
                                        unsigned int priority,
                                        unsigned int tag);

/**
 * As gm_provide_receive_buffer_with_tag(), with tag 0.
 */
void gm_provide_receive_buffer(struct gm_port *port,
                               void *ptr,
                               unsigned int size,
                               unsigned int priority);

/**
 * From now on messages of `priority` are accepted whose size has its bit in `mask`; others fail with
 * GM_SEND_REJECTED. A port that was opened accepts all.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_set_acceptable_sizes(struct gm_port *port,
                                    unsigned int priority,
                                    gm_size_t mask);

/**
 * The next event of a port; its type is GM_NO_RECV_EVENT when there is none. It is valid until the next
 * call for the port. Those that the program does not know must be given to gm_unknown().
 */
union gm_recv_event *gm_receive(struct gm_port *port);

/**
 * Whether gm_receive() would return an event: 1 or 0.
 */
int gm_receive_pending(struct gm_port *port);

/**
 * The type of the event that gm_receive() would return; of a message, `sender` gets the node that has
 * sent it, else 0. `sender` may be null.
 */
int gm_next_event_peek(struct gm_port *port,
                       uint16_t *sender);

/**
 * As gm_receive(), and waits for an event: it looks for a while, then it sleeps.
 */
union gm_recv_event *gm_blocking_receive(struct gm_port *port);

/**
 * As gm_receive(), and waits for an event: it sleeps at once when there is none.
 */
union gm_recv_event *gm_blocking_receive_no_spin(struct gm_port *port);

/**
 * Takes an event that the program does not know: calls the functions of sends that have ended and of
 * alarms. A short message is copied to its buffer and comes again, as one whose event has not FAST in
 * its name. A token violation ends the job.
 */
void gm_unknown(struct gm_port *port,
                union gm_recv_event *event);

/**
 * Sends `len` bytes with `size` and `priority` to port `target_port_id` of node `target_node_id`. Of one
 * pair of ports and priority, messages arrive in the order in which they were sent. When it has been
 * accepted into a buffer there, or has failed, gm_unknown() calls `callback` with the reason; until then
 * the bytes must stay as they are. Takes a send token; when there is none, the port gets a
 * GM_SEND_TOKEN_VIOLATION_EVENT, and nothing is sent.
 */
void gm_send_with_callback(struct gm_port *port,
                           void *message,
                           unsigned int size,
                           gm_size_t len,
                           unsigned int priority,
                           unsigned int target_node_id,
                           unsigned int target_port_id,
                           gm_send_completion_callback_t callback,
                           void *context);

/**
 * As gm_send_with_callback(), to the port with the same number as this one.
 */
void gm_send_to_peer_with_callback(struct gm_port *port,
                                   void *message,
                                   unsigned int size,
                                   gm_size_t len,
                                   unsigned int priority,
                                   unsigned int target_node_id,
                                   gm_send_completion_callback_t callback,
                                   void *context);

/**
 * Sends up to gm_mtu() bytes that may be lost: on the network, or for want of a buffer. The callback
 * runs when they have left.
 */
void gm_datagram_send(struct gm_port *port,
                      void *message,
                      unsigned int size,
                      gm_size_t len,
                      unsigned int priority,
                      unsigned int target_node_id,
                      unsigned int target_port_id,
                      gm_send_completion_callback_t callback,
                      void *context);

/**
 * Writes `len` bytes to address `target` of the process with port `target_port_id` of node
 * `target_node_id`, which has registered that memory and called gm_allow_remote_memory_access(). The
 * program there gets no event. It is in order with messages of the same ports and priority.
 */
void gm_directed_send_with_callback(struct gm_port *port,
                                    void *source,
                                    gm_remote_ptr_t target,
                                    gm_size_t len,
                                    unsigned int priority,
                                    unsigned int target_node_id,
                                    unsigned int target_port_id,
                                    gm_send_completion_callback_t callback,
                                    void *context);

/**
 * The same as gm_directed_send_with_callback().
 */
void gm_put(struct gm_port *port,
            void *source,
            gm_remote_ptr_t target,
            gm_size_t len,
            unsigned int priority,
            unsigned int target_node_id,
            unsigned int target_port_id,
            gm_send_completion_callback_t callback,
            void *context);

/**
 * Reads `len` bytes at address `source` of the process with port `source_port_id` of node
 * `source_node_id` into `target`, under the conditions of gm_directed_send_with_callback().
 */
void gm_get(struct gm_port *port,
            gm_remote_ptr_t source,
            void *target,
            gm_size_t len,
            unsigned int priority,
            unsigned int source_node_id,
            unsigned int source_port_id,
            gm_send_completion_callback_t callback,
            void *context);

/**
 * Lets other processes read and write the memory that this one has registered, by this port.
 *
 * Errors: GM_UNATTACHED, GM_INVALID_PARAMETER.
 */
gm_status_t gm_allow_remote_memory_access(struct gm_port *port);

/**
 * After a send has failed: goes on with those after it to the same port with the same priority, which
 * have waited. Takes a send token.
 */
void gm_resume_sending(struct gm_port *port,
                       unsigned int priority,
                       unsigned int target_node_id,
                       unsigned int target_port_id,
                       gm_send_completion_callback_t callback,
                       void *context);

/**
 * Throws away what was sent to a port with a priority and has not been accepted there: the callbacks get
 * GM_SEND_DROPPED. What is sent after this goes on. Takes a send token.
 */
void gm_drop_sends(struct gm_port *port,
                   unsigned int priority,
                   unsigned int target_node_id,
                   unsigned int target_port_id,
                   gm_send_completion_callback_t callback,
                   void *context);

/**
 * Registers `length` bytes: others may read and write them when the port allows it. They may be
 * registered more than once.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_register_memory(struct gm_port *port, void *ptr, gm_size_t length);

/**
 * As gm_register_memory(); `pvma`, the address that others use, must be that of the memory.
 *
 * Errors: those of gm_register_memory().
 */
gm_status_t gm_register_memory_ex(struct gm_port *port, void *ptr, gm_size_t length, void *pvma);

/**
 * Ends one registration of just these bytes. On return nobody touches them any more, unless they are
 * registered otherwise, too.
 *
 * Errors: GM_INVALID_PARAMETER when they were not registered, GM_UNATTACHED.
 */
gm_status_t gm_deregister_memory(struct gm_port *port,
                                 void *ptr,
                                 gm_size_t length);

/**
 * `length` bytes of registered memory; null when there is none. To be freed by gm_dma_free().
 */
void *gm_dma_malloc(struct gm_port *port, gm_size_t length);

/**
 * As gm_dma_malloc(), `count` times `length` bytes of zeros.
 */
void *gm_dma_calloc(struct gm_port *port, gm_size_t count, gm_size_t length);

/**
 * Frees memory of gm_dma_malloc() and gm_dma_calloc(); null is none. Memory of sends that have not ended
 * stays until they have, so that their receivers get the bytes; so does memory that others read or write.
 */
void gm_dma_free(struct gm_port *port,
                 void *ptr);

/**
 * Prepares the memory of an alarm; before it is set for the first time.
 */
void gm_initialize_alarm(struct gm_alarm *alarm);

/**
 * Makes gm_unknown() call `callback` with `context` after so many microseconds. An alarm that is set
 * already is set anew.
 */
void gm_set_alarm(struct gm_port *port,
                  struct gm_alarm *alarm,
                  uint64_t microseconds,
                  gm_alarm_callback_t callback,
                  void *context);

/**
 * Makes an alarm not happen, also when it is due already. One that is not set stays so.
 */
void gm_cancel_alarm(struct gm_alarm *alarm);

/**
 * `node_id` gets the number of this process's node.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_node_id(struct gm_port *port, unsigned int *node_id);

/**
 * `name`, of GM_MAX_HOST_NAME_LEN bytes, gets the name of this process's node.
 *
 * Errors: GM_INVALID_PARAMETER, GM_OUTPUT_BUFFER_TOO_SMALL, GM_UNATTACHED.
 */
gm_status_t gm_get_host_name(struct gm_port *port, char *name);

/**
 * `name`, of GM_MAX_HOST_NAME_LEN bytes, gets the name of a node.
 *
 * Errors: those of gm_get_host_name().
 */
gm_status_t gm_node_id_to_host_name_ex(struct gm_port *port,
                                       unsigned int _timeout,
                                       unsigned int node,
                                       char *name);

/**
 * `node` gets the number of the node with that name. Nothing is asked of others, so there is nothing to
 * wait `timeout` microseconds for.
 *
 * Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_host_name_to_node_id_ex(struct gm_port *port,
                                       unsigned int _timeout,
                                       const char *name,
                                       unsigned int *node);

/**
 * The number of the node with that name, or GM_NO_SUCH_NODE_ID.
 */
unsigned int gm_host_name_to_node_id(struct gm_port *port, const char *name);

/**
 * `board_id`, 6 bytes, gets the number of this process's board.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_unique_board_id(struct gm_port *port, uint8_t *board_id);

/**
 * `board_id`, 6 bytes, gets the number of the board of the job's first node, which has no more to do
 * with others than any.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_mapper_unique_id(struct gm_port *port,
                                    uint8_t *board_id);

/**
 * `board_id`, 6 bytes, gets the number of a node's board.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_node_id_to_unique_id(struct gm_port *port, unsigned int node, uint8_t *board_id);

/**
 * `node` gets the number of the node with that board.
 *
 * Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_unique_id_to_node_id(struct gm_port *port,
                                    const uint8_t *board_id,
                                    unsigned int *node);

/**
 * `global` gets the number that all processes have for a node, which is the same.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_node_id_to_global_id(struct gm_port *port, unsigned int node, unsigned int *global);

/**
 * `node` gets the number that this process has for the node with a global number, which is the same.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_global_id_to_node_id(struct gm_port *port,
                                    unsigned int global,
                                    unsigned int *node);

/**
 * `node` gets the highest number that a node may have.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_max_node_id(struct gm_port *port, unsigned int *node);

/**
 * `node` gets the highest number of a node of this job.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_max_node_id_in_use(struct gm_port *port, unsigned int *node);

/**
 * Time since some moment, in units of half a microsecond, as GM counted it.
 */
uint64_t gm_ticks(struct gm_port *_port);

/**
 * Sleeps for so many seconds; 0.
 */
int gm_sleep(unsigned int seconds);

/**
 * Ends the process: with exit status 0 for GM_SUCCESS, else with 1.
 */
void gm_exit(gm_status_t status);

/**
 * Ends all processes of the job.
 */
void gm_abort(void);

/**
 * The number of this process.
 */
unsigned int gm_getpid(void);

/**
 * Prints `message`, a colon and what `status` means to the standard error output.
 */
void gm_perror(const char *message, gm_status_t status);

/**
 * Prints `length` bytes as hexadecimal numbers, 16 a line, to the standard output.
 */
void gm_hex_dump(const void *ptr, gm_size_t length);

/**
 * The power of two, as its exponent, that is `number` or the next one above.
 */
unsigned long gm_log2_roundup(unsigned long number);

/**
 * Makes a hash table for at least `min_entries` entries, which grows. Keys of `key_len` bytes and data of
 * `data_len` are copied; of length 0 they are addresses, which the table keeps as they are. Keys are
 * compared by `compare` and numbered by `hash`; where these are null, by their bytes or addresses.
 * `flags` must be 0. Null if it is not.
 */
struct gm_hash *gm_create_hash(gm_hash_compare_t compare,
                               gm_hash_function_t hash,
                               gm_size_t key_len,
                               gm_size_t data_len,
                               gm_size_t min_entries,
                               int flags);

/**
 * Frees a hash table; null is none.
 */
void gm_destroy_hash(struct gm_hash *hash);

/**
 * Adds an entry.
 *
 * Errors: GM_INVALID_PARAMETER when `hash` is null; GM_BUSY when there is an entry with that key.
 */
gm_status_t gm_hash_insert(struct gm_hash *hash, void *key, void *datum);

/**
 * The datum of the entry with that key, or null.
 */
void *gm_hash_find(struct gm_hash *hash, void *key);

/**
 * Removes the entry with that key: its datum, which stays until the next is removed, or null.
 */
void *gm_hash_remove(struct gm_hash *hash, void *key);

/**
 * Gives the entry with one key another, for which there must be none. Nothing happens if there is no
 * such entry, or the other key is in use.
 */
void gm_hash_rekey(struct gm_hash *hash,
                   void *old_key,
                   void *new_key);

/**
 * Makes a list of entries of `entry_len` bytes, `min_entries` of which are there at once; null when there
 * is no memory.
 */
struct gm_lookaside *gm_create_lookaside(gm_size_t entry_len,
                                         gm_size_t min_entries);

/**
 * Frees a list; null is none. Entries that were not given back stay until they are.
 */
void gm_destroy_lookaside(struct gm_lookaside *list);

/**
 * An entry of a list; null when there is no memory.
 */
void *gm_lookaside_alloc(struct gm_lookaside *list);

/**
 * The same, of zeros.
 */
void *gm_lookaside_zalloc(struct gm_lookaside *list);

/**
 * Gives an entry back to its list; null is none.
 */
void gm_lookaside_free(void *entry);

/**
 * The checksum of `length` bytes; that of none if `ptr` is null.
 */
unsigned long gm_crc(const void *ptr, gm_size_t length);

/**
 * The checksum of a string without its zero; that of none if `string` is null.
 */
unsigned long gm_crc_str(const char *string);

/**
 * Makes a lock, which is open.
 */
struct gm_mutex *gm_create_mutex(void);

/**
 * Frees a lock, which must be open; null is none.
 */
void gm_destroy_mutex(struct gm_mutex *mutex);

/**
 * Closes a lock, and waits for that until it is open.
 */
void gm_mutex_enter(struct gm_mutex *mutex);

/**
 * Opens a lock that this thread has closed; one that is open stays so.
 */
void gm_mutex_exit(struct gm_mutex *mutex);

/**
 * Makes a set with room for `init_count` marks; it grows.
 *
 * Errors: GM_INVALID_PARAMETER when `set` is null, GM_OUT_OF_MEMORY.
 */
gm_status_t gm_create_mark_set(struct gm_mark_set **set, unsigned long init_count);

/**
 * Frees a set; null is none.
 */
void gm_destroy_mark_set(struct gm_mark_set *set);

/**
 * Makes `mark` one of the set's.
 *
 * Errors: GM_INVALID_PARAMETER when one of them is null.
 */
gm_status_t gm_mark(struct gm_mark_set *set, struct gm_mark_t *mark);

/**
 * Whether `mark` is one of the set's: 1 or 0.
 */
int gm_mark_is_valid(struct gm_mark_set *set, struct gm_mark_t *mark);

/**
 * Makes `mark` none of the set's.
 */
void gm_unmark(struct gm_mark_set *set, struct gm_mark_t *mark);

/**
 * Makes all marks none of the set's.
 */
void gm_unmark_all(struct gm_mark_set *set);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GM_H */

/* The type of an event, a number such as GM_RECV_EVENT. */
#define GM_RECV_EVENT_TYPE(event) gm_ntoh_u8((event)->recv.type)

/* What a program prints. */
#define gm_printf printf
#define gm_eprintf(...) fprintf(stderr, __VA_ARGS__)
