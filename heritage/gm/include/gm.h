/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of Myricom's GM on Portolan.
 *
 * Generated from heritage/gm by cbindgen: do not edit. docs/reference/heritage.md names
 * the choices that were made where the original is unknown. */

#ifndef GM_H
#define GM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef GM_STRONG_TYPES
#undef GM_STRONG_TYPES
#endif
/* Numbers in the network's order are plain integers. */
#define GM_STRONG_TYPES 0

#define gm_inline inline

/* Integers, and an integer that holds an address. */
typedef uint8_t gm_u8_t;
typedef int8_t gm_s8_t;
typedef uint16_t gm_u16_t;
typedef int16_t gm_s16_t;
typedef uint32_t gm_u32_t;
typedef int32_t gm_s32_t;
typedef uint64_t gm_u64_t;
typedef int64_t gm_s64_t;
typedef gm_u64_t gm_up_t;

/* Numbers in the network's order. */
typedef gm_u8_t gm_u8_n_t;
typedef gm_s8_t gm_s8_n_t;
typedef gm_u16_t gm_u16_n_t;
typedef gm_s16_t gm_s16_n_t;
typedef gm_u32_t gm_u32_n_t;
typedef gm_s32_t gm_s32_n_t;
typedef gm_u64_t gm_u64_n_t;
typedef gm_s64_t gm_s64_n_t;
typedef gm_up_t gm_up_n_t;

/* The results of functions. */
enum gm_status {
  GM_SUCCESS = 0,
  GM_FAILURE = 1,
  GM_INPUT_BUFFER_TOO_SMALL = 2,
  GM_OUTPUT_BUFFER_TOO_SMALL = 3,
  GM_TRY_AGAIN = 4,
  GM_BUSY = 5,
  GM_MEMORY_FAULT = 6,
  GM_INTERRUPTED = 7,
  GM_INVALID_PARAMETER = 8,
  GM_OUT_OF_MEMORY = 9,
  GM_INVALID_COMMAND = 10,
  GM_PERMISSION_DENIED = 11,
  GM_INTERNAL_ERROR = 12,
  GM_UNATTACHED = 13,
  GM_UNSUPPORTED_DEVICE = 14,
  GM_SEND_TIMED_OUT = 15,
  GM_SEND_REJECTED = 16,
  GM_SEND_TARGET_PORT_CLOSED = 17,
  GM_SEND_TARGET_NODE_UNREACHABLE = 18,
  GM_SEND_DROPPED = 19,
  GM_SEND_PORT_CLOSED = 20,
  GM_NODE_ID_NOT_YET_SET = 21,
  GM_STILL_SHUTTING_DOWN = 22,
  GM_CLONE_BUSY = 23,
  GM_NO_SUCH_DEVICE = 24,
  GM_ABORTED = 25,
  GM_INCOMPATIBLE_LIB_AND_DRIVER = 26,
  GM_UNTRANSLATED_SYSTEM_ERROR = 27,
  GM_ACCESS_DENIED = 28,
  GM_NO_DRIVER_SUPPORT = 29,
  GM_PTE_REF_CNT_OVERFLOW = 30,
  GM_NOT_SUPPORTED_IN_KERNEL = 31,
  GM_NOT_SUPPORTED_ON_ARCH = 32,
  GM_NO_MATCH = 33,
  GM_USER_ERROR = 34,
  GM_TIMED_OUT = 35,
  GM_DATA_CORRUPTED = 36,
  GM_HARDWARE_FAULT = 37,
  GM_SEND_ORPHANED = 38,
  GM_MINOR_OVERFLOW = 39,
  GM_PAGE_TABLE_FULL = 40,
  GM_UC_ERROR = 41,
  GM_INVALID_PORT_NUMBER = 42,
  GM_DEV_NOT_FOUND = 43,
  GM_FIRMWARE_NOT_RUNNING = 44,
  GM_YP_NO_MATCH = 45,
  GM_SRAM_PARITY_ERROR = 46,
  GM_FIRMWARE_ABORT = 47
};

/* The priorities of messages. */
enum gm_priority {
  GM_LOW_PRIORITY = 0,
  GM_HIGH_PRIORITY = 1
};

/* The versions of the interface. */
enum gm_api_version {
  GM_API_VERSION_1_0 = 256,
  GM_API_VERSION_1_1 = 257,
  GM_API_VERSION_1_2 = 258,
  GM_API_VERSION_1_3 = 259,
  GM_API_VERSION_1_4 = 260,
  GM_API_VERSION_1_5 = 261,
  GM_API_VERSION_1_6 = 262,
  GM_API_VERSION_2_0 = 512,
  GM_API_VERSION_2_0_6 = 131078,
  GM_API_VERSION_2_0_16 = 131088
};

/* The types of events. Those without a comment below do not occur. A name is also
 * written with an underscore. */
enum gm_recv_event_type {
  GM_NO_RECV_EVENT = 0,
  GM_SENDS_FAILED_EVENT = 1,
  GM_ALARM_EVENT = 2,
  GM_SENT_EVENT = 3,
  _GM_SLEEP_EVENT = 4,
  GM_RAW_RECV_EVENT = 5,
  GM_BAD_SEND_DETECTED_EVENT = 6,
  GM_SEND_TOKEN_VIOLATION_EVENT = 7,
  GM_RECV_TOKEN_VIOLATION_EVENT = 8,
  GM_BAD_RECV_TOKEN_EVENT = 9,
  GM_ALARM_VIOLATION_EVENT = 10,
  GM_RECV_EVENT = 11,
  GM_HIGH_RECV_EVENT = 12,
  GM_PEER_RECV_EVENT = 13,
  GM_HIGH_PEER_RECV_EVENT = 14,
  GM_FAST_RECV_EVENT = 15,
  GM_FAST_HIGH_RECV_EVENT = 16,
  GM_FAST_PEER_RECV_EVENT = 17,
  GM_FAST_HIGH_PEER_RECV_EVENT = 18,
  GM_REJECTED_SEND_EVENT = 19,
  GM_ORPHANED_SEND_EVENT = 20,
  GM_BAD_RESEND_DETECTED_EVENT = 24,
  GM_DROPPED_SEND_EVENT = 25,
  GM_BAD_SEND_VMA_EVENT = 26,
  GM_BAD_RECV_VMA_EVENT = 27,
  _GM_FLUSHED_ALARM_EVENT = 28,
  GM_SENT_TOKENS_EVENT = 29,
  GM_IGNORE_RECV_EVENT = 30,
  GM_ETHERNET_RECV_EVENT = 31,
  _GM_NO_RECV_EVENT = 0,
  _GM_SENDS_FAILED_EVENT = 1,
  _GM_ALARM_EVENT = 2,
  _GM_SENT_EVENT = 3,
  _GM_RAW_RECV_EVENT = 5,
  _GM_BAD_SEND_DETECTED_EVENT = 6,
  _GM_SEND_TOKEN_VIOLATION_EVENT = 7,
  _GM_RECV_TOKEN_VIOLATION_EVENT = 8,
  _GM_BAD_RECV_TOKEN_EVENT = 9,
  _GM_ALARM_VIOLATION_EVENT = 10,
  _GM_RECV_EVENT = 11,
  _GM_HIGH_RECV_EVENT = 12,
  _GM_PEER_RECV_EVENT = 13,
  _GM_HIGH_PEER_RECV_EVENT = 14,
  _GM_FAST_RECV_EVENT = 15,
  _GM_FAST_HIGH_RECV_EVENT = 16,
  _GM_FAST_PEER_RECV_EVENT = 17,
  _GM_FAST_HIGH_PEER_RECV_EVENT = 18,
  _GM_REJECTED_SEND_EVENT = 19,
  _GM_ORPHANED_SEND_EVENT = 20,
  _GM_BAD_RESEND_DETECTED_EVENT = 24,
  _GM_DROPPED_SEND_EVENT = 25,
  _GM_BAD_SEND_VMA_EVENT = 26,
  _GM_BAD_RECV_VMA_EVENT = 27,
  _GM_SENT_TOKENS_EVENT = 29,
  _GM_IGNORE_RECV_EVENT = 30,
  _GM_ETHERNET_RECV_EVENT = 31
};


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
 * Maximum length of a host's name in bytes, including the final zero.
 */
#define GM_MAX_HOST_NAME_LEN 128

/**
 * Maximum length of a port's name in bytes, including the final zero.
 */
#define GM_MAX_PORT_NAME_LEN 32

/**
 * Number of no node; numbers of nodes begin at 1.
 */
#define GM_NO_SUCH_NODE_ID 0

/**
 * Priority of ordinary messages.
 */
#define GM_LOW_PRIORITY 0

/**
 * Priority of messages that must not wait behind ordinary ones.
 */
#define GM_HIGH_PRIORITY 1

/**
 * Number of priorities.
 */
#define GM_NUM_PRIORITIES 2

/**
 * Bytes of a page of gm_alloc_pages().
 */
#define GM_PAGE_LEN 4096

/**
 * Unit of the hardware's remote accesses, in bytes. Portolan has no such rule.
 */
#define GM_RDMA_GRANULARITY 64

/**
 * Unit of the hardware's memory accesses, in bytes. Portolan has no such rule.
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
 * No memory is available.
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
 * No such node exists, or it has failed.
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
 * No event.
 */
#define GM_NO_RECV_EVENT 0

/**
 * A send without a callback has failed. gm_unknown() ends the job.
 */
#define GM_SENDS_FAILED_EVENT 1

/**
 * An alarm is due. gm_unknown() calls its function.
 */
#define GM_ALARM_EVENT 2

/**
 * A send has ended. gm_unknown() calls its function.
 */
#define GM_SENT_EVENT 3

/**
 * The program has sent without a token. Nothing was sent.
 */
#define GM_SEND_TOKEN_VIOLATION_EVENT 7

/**
 * The program has provided a buffer without a token. The buffer was not taken.
 */
#define GM_RECV_TOKEN_VIOLATION_EVENT 8

/**
 * A message has filled a buffer.
 */
#define GM_RECV_EVENT 11

/**
 * A message with high priority has filled a buffer.
 */
#define GM_HIGH_RECV_EVENT 12

/**
 * A message from a port with the same number has filled a buffer.
 */
#define GM_PEER_RECV_EVENT 13

/**
 * A message from a port with the same number, with high priority, has filled a buffer.
 */
#define GM_HIGH_PEER_RECV_EVENT 14

/**
 * A short message is at `message`. Its buffer was not used.
 */
#define GM_FAST_RECV_EVENT 15

/**
 * A short message with high priority is at `message`.
 */
#define GM_FAST_HIGH_RECV_EVENT 16

/**
 * A short message from a port with the same number is at `message`.
 */
#define GM_FAST_PEER_RECV_EVENT 17

/**
 * A short message from a port with the same number, with high priority, is at `message`.
 */
#define GM_FAST_HIGH_PEER_RECV_EVENT 18

/**
 * Option of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are copied when they
 * are sent.
 */
#define GM_PLUS_INLINE 1

/**
 * Option of gm_set_port_options(): messages of up to GM_PLUS_LEN_MAX bytes are not acknowledged.
 */
#define GM_PLUS_UNACKNOWLEDGED 2

/**
 * Option of gm_set_port_options(): as GM_PLUS_UNACKNOWLEDGED, and losses of the network are not
 * repaired. Such messages may overtake earlier ones.
 */
#define GM_PLUS_BEST_EFFORT 4

/**
 * Length of the longest message that the options of GM+ apply to, in bytes.
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
 * Result of an operation.
 */
typedef int gm_status_t;

/**
 * A length.
 */
typedef unsigned long gm_size_t;

/**
 * Fields of an event. Read them with gm_ntoh_u8() and the related functions.
 */
typedef struct gm_recv_event_fields {
  /**
   * Address of a short message.
   */
  uint64_t message;
  /**
   * Buffer of the message.
   */
  uint64_t buffer;
  /**
   * Length of the message, in bytes.
   */
  uint32_t length;
  /**
   * Node that sent the message.
   */
  uint16_t sender_node_id;
  /**
   * Tag of the buffer.
   */
  uint8_t tag;
  /**
   * Size of the message and the buffer.
   */
  uint8_t size;
  /**
   * Port that sent the message.
   */
  uint8_t sender_port_id;
  /**
   * Type of the event.
   */
  uint8_t type;
} gm_recv_event_fields;

/**
 * Fields of the event of a send without a callback: GM_SENT_EVENT, GM_SENDS_FAILED_EVENT.
 */
typedef struct gm_sent_event_fields {
  /**
   * Address of a list of messages' addresses, which null ends. 0 for a send with a callback.
   */
  uint64_t message_list;
  /**
   * Reserved, 0.
   */
  uint8_t reserved[17];
  /**
   * Type of the event.
   */
  uint8_t type;
} gm_sent_event_fields;

/**
 * Event of a port.
 */
typedef union gm_recv_event {
  /**
   * Fields of the event. Messages have all of them, other events only the type.
   */
  struct gm_recv_event_fields recv;
  /**
   * Fields of the event of a send without a callback.
   */
  struct gm_sent_event_fields sent;
} gm_recv_event;

/**
 * Function that is called when a send has ended.
 */
typedef void (*gm_send_completion_callback_t)(struct gm_port *port,
                                              void *context,
                                              gm_status_t status);

/**
 * An address in the memory of another process.
 */
typedef uint64_t gm_remote_ptr_t;

/**
 * An alarm. The fields are private to the library.
 */
typedef struct gm_alarm {
  /**
   * Number of the last time that it was set. 0 before the first time, and after it was
   * cancelled.
   */
  uint64_t number;
  /**
   * Reserved for future use.
   */
  uint64_t reserved[3];
} gm_alarm;

/**
 * Function that an alarm calls.
 */
typedef void (*gm_alarm_callback_t)(void *context);

/**
 * Compares two keys: returns 0 if they are equal.
 */
typedef long (*gm_hash_compare_t)(void *key1, void *key2);

/**
 * Returns a number for a key, the same for equal keys.
 */
typedef unsigned long (*gm_hash_function_t)(void *key);

/**
 * A mark. Its value is private to the library.
 */
typedef gm_size_t gm_mark_t;

/**
 * Event of a port.
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
 * Returns the meaning of a status as text, which must not be changed; never null.
 */
char *gm_strerror(gm_status_t status);

/**
 * Returns the reason for which the last function failed on this thread, as a sentence. Not in the
 * original.
 */
const char *gm_last_error(void);

/**
 * Converts a byte of an event.
 */
uint8_t gm_ntoh_u8(uint8_t value);

/**
 * Converts a 16-bit number of an event.
 */
uint16_t gm_ntoh_u16(uint16_t value);

/**
 * Converts a 32-bit number of an event.
 */
uint32_t gm_ntoh_u32(uint32_t value);

/**
 * Converts an address of an event.
 */
void *gm_ntohp(uint64_t value);

/**
 * Copies the `length` bytes of a short message to its buffer, and returns the buffer.
 */
void *gm_memorize_message(const void *message, void *buffer, unsigned int length);

/**
 * Returns the smallest size for messages of `length` bytes: 2 to the power of the size is at least
 * `length` + 8.
 */
unsigned int gm_min_size_for_length(gm_size_t length);

/**
 * Returns the length of the longest message of `size` in bytes: 2 to the power of `size`, minus 8.
 */
gm_size_t gm_max_length_for_size(unsigned int size);

/**
 * Converts an unsigned number of 64 bits from the network's order.
 */
uint64_t gm_ntoh_u64(uint64_t value);

/**
 * Converts a signed number of 8 bits from the network's order.
 */
int8_t gm_ntoh_s8(int8_t value);

/**
 * Converts a signed number of 16 bits from the network's order.
 */
int16_t gm_ntoh_s16(int16_t value);

/**
 * Converts a signed number of 32 bits from the network's order.
 */
int32_t gm_ntoh_s32(int32_t value);

/**
 * Converts a signed number of 64 bits from the network's order.
 */
int64_t gm_ntoh_s64(int64_t value);

/**
 * Converts an unsigned number of 8 bits to the network's order.
 */
uint8_t gm_hton_u8(uint8_t value);

/**
 * Converts an unsigned number of 16 bits to the network's order.
 */
uint16_t gm_hton_u16(uint16_t value);

/**
 * Converts an unsigned number of 32 bits to the network's order.
 */
uint32_t gm_hton_u32(uint32_t value);

/**
 * Converts an unsigned number of 64 bits to the network's order.
 */
uint64_t gm_hton_u64(uint64_t value);

/**
 * Converts a signed number of 8 bits to the network's order.
 */
int8_t gm_hton_s8(int8_t value);

/**
 * Converts a signed number of 16 bits to the network's order.
 */
int16_t gm_hton_s16(int16_t value);

/**
 * Converts a signed number of 32 bits to the network's order.
 */
int32_t gm_hton_s32(int32_t value);

/**
 * Converts a signed number of 64 bits to the network's order.
 */
int64_t gm_hton_s64(int64_t value);

/**
 * Converts an address to the network's order, for gm_ntohp().
 */
uint64_t gm_htonp(void *address);

/**
 * Initializes GM: joins the job. It may be called more than once; call gm_finalize() equally
 * often.
 *
 * Errors: GM_FAILURE when the job cannot be joined, GM_ACCESS_DENIED in a child that was forked.
 */
gm_status_t gm_init(void);

/**
 * Ends the use that one gm_init() began. The last call closes all ports. The process leaves the
 * job when it exits.
 */
void gm_finalize(void);

/**
 * Opens port `port_id` of unit 0 of this process's node, and stores its handle in `port`. `name`,
 * up to 31 characters, is informational. `version` is the version that the program was written
 * for.
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
 * Closes a port. Its buffers belong to the program again, and its callbacks are no longer called.
 * Messages that arrive later fail with GM_SEND_TARGET_PORT_CLOSED.
 */
void gm_close(struct gm_port *port);

/**
 * Sets the options of GM+: the sum of GM_PLUS_INLINE, GM_PLUS_UNACKNOWLEDGED and
 * GM_PLUS_BEST_EFFORT, or 0. Not in the original: its options were chosen when GM+ was built.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_set_port_options(struct gm_port *port, unsigned int options);

/**
 * Returns the number of a port, or 0 for an invalid pointer.
 */
unsigned int gm_get_port_id(const struct gm_port *port);

/**
 * Returns the number of ports of a node: 8.
 */
unsigned int gm_num_ports(const struct gm_port *_port);

/**
 * Returns the number of send tokens of a new port.
 */
unsigned int gm_num_send_tokens(const struct gm_port *_port);

/**
 * Returns the number of receive tokens of a new port.
 */
unsigned int gm_num_receive_tokens(const struct gm_port *_port);

/**
 * Returns the length of the longest datagram in bytes: 4096.
 */
unsigned int gm_mtu(const struct gm_port *_port);

/**
 * Returns the smallest size of a message: 3, for a message without bytes.
 */
unsigned int gm_min_message_size(const struct gm_port *_port);

/**
 * Takes a send token of `priority` from the bank. Returns 1, or 0 if the bank has none.
 */
int gm_alloc_send_token(struct gm_port *port, unsigned int priority);

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
 * Provides a buffer of gm_max_length_for_size(`size`) bytes for one message of that size and
 * priority. The buffer belongs to the library until an event names it. That event has `tag`, a
 * byte. Takes a receive token. If there is none, the port gets a GM_RECV_TOKEN_VIOLATION_EVENT and
 * the buffer is not taken.
 */
void gm_provide_receive_buffer_with_tag(struct gm_port *port,
                                        void *ptr,
                                        unsigned int size,
                                        unsigned int priority,
                                        unsigned int tag);

/**
 * Does the same as gm_provide_receive_buffer_with_tag(), with tag 0.
 */
void gm_provide_receive_buffer(struct gm_port *port,
                               void *ptr,
                               unsigned int size,
                               unsigned int priority);

/**
 * Sets the accepted sizes of `priority`: those whose bit is set in `mask`. Messages of other sizes
 * fail with GM_SEND_REJECTED. A new port accepts all sizes.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_set_acceptable_sizes(struct gm_port *port, unsigned int priority, gm_size_t mask);

/**
 * Returns the next event of a port. Its type is GM_NO_RECV_EVENT when there is none. The event is
 * valid until the next call for the port. Pass events that the program does not handle to
 * gm_unknown().
 */
union gm_recv_event *gm_receive(struct gm_port *port);

/**
 * Returns 1 if gm_receive() would return an event, and 0 otherwise.
 */
int gm_receive_pending(struct gm_port *port);

/**
 * Returns the type of the event that gm_receive() would return. Stores the node that sent a
 * message in `sender`, or 0 for other events. `sender` may be null.
 */
int gm_next_event_peek(struct gm_port *port, uint16_t *sender);

/**
 * Waits for an event like gm_receive(). It polls for a while before it sleeps.
 */
union gm_recv_event *gm_blocking_receive(struct gm_port *port);

/**
 * Waits for an event like gm_receive(). It sleeps at once when there is none.
 */
union gm_recv_event *gm_blocking_receive_no_spin(struct gm_port *port);

/**
 * Handles an event that the program does not handle. For an ended send or an alarm, calls its
 * function. A short message is copied to its buffer and received again, as an event without FAST
 * in its name. A token violation ends the job.
 */
void gm_unknown(struct gm_port *port, union gm_recv_event *event);

/**
 * Sends `len` bytes with `size` and `priority` to port `target_port_id` of node `target_node_id`.
 * Messages of one pair of ports and one priority arrive in the order in which they were sent. When
 * the message was accepted into a buffer there, or has failed, gm_unknown() calls `callback` with
 * the status. The bytes must stay unchanged until then. Takes a send token. If there is none, the
 * port gets a GM_SEND_TOKEN_VIOLATION_EVENT, and nothing is sent.
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
 * Sends like gm_send_with_callback(), to the port with the same number as this one.
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
 * Sends up to gm_mtu() bytes that may be lost: on the network, or for lack of a buffer. The
 * callback runs when they were sent.
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
 * `target_node_id`. That process must have registered the memory and called
 * gm_allow_remote_memory_access(). Its program gets no event. The write is ordered with messages
 * of the same ports and priority.
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
 * Does the same as gm_directed_send_with_callback().
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
 * `source_node_id` into `target`. The conditions are those of gm_directed_send_with_callback().
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
 * Allows other processes to read and write the registered memory of this one through this port.
 *
 * Errors: GM_UNATTACHED, GM_INVALID_PARAMETER.
 */
gm_status_t gm_allow_remote_memory_access(struct gm_port *port);

/**
 * Sends like gm_send_with_callback(), without a callback. When the send has ended, the port gets a
 * GM_SENT_EVENT whose `sent.message_list` is the address of a list with the message's address and
 * null, valid until the next call for the port. A failed send causes a GM_SENDS_FAILED_EVENT with
 * such a list. The send token is back when the event is received.
 */
void gm_send(struct gm_port *port,
             void *message,
             unsigned int size,
             gm_size_t len,
             unsigned int priority,
             unsigned int target_node_id,
             unsigned int target_port_id);

/**
 * Sends like gm_send(), to the port with the same number as this one.
 */
void gm_send_to_peer(struct gm_port *port,
                     void *message,
                     unsigned int size,
                     gm_size_t len,
                     unsigned int priority,
                     unsigned int target_node_id);

/**
 * Writes to remote memory like gm_directed_send_with_callback(). Its end is reported like that of
 * gm_send(), with the address of `source`.
 */
void gm_directed_send(struct gm_port *port,
                      void *source,
                      gm_remote_ptr_t target,
                      gm_size_t len,
                      unsigned int priority,
                      unsigned int target_node_id,
                      unsigned int target_port_id);

/**
 * Sends the first `len` bytes of `message`, at most 4, like gm_datagram_send().
 */
void gm_datagram_send_4(struct gm_port *port,
                        uint32_t message,
                        unsigned int size,
                        gm_size_t len,
                        unsigned int priority,
                        unsigned int target_node_id,
                        unsigned int target_port_id,
                        gm_send_completion_callback_t callback,
                        void *context);

/**
 * Copies `length` bytes from `source_addr` of another process of this host to `target_addr`, and
 * returns when they are there. The source is the process with board `source_instance_id`, and its
 * port `source_port_id` must allow remote access to the registered memory. Takes a send token
 * meanwhile.
 *
 * Errors: GM_NO_MATCH, GM_TRY_AGAIN without a send token, GM_BUSY after a failed send,
 * GM_PERMISSION_DENIED, GM_MEMORY_FAULT and others of a get.
 */
gm_status_t gm_directcopy_get(struct gm_port *port,
                              void *source_addr,
                              void *target_addr,
                              gm_size_t length,
                              unsigned int source_instance_id,
                              unsigned int source_port_id);

/**
 * Resumes after a failed send: continues with the sends to the same port with the same priority
 * that have waited. Takes a send token.
 */
void gm_resume_sending(struct gm_port *port,
                       unsigned int priority,
                       unsigned int target_node_id,
                       unsigned int target_port_id,
                       gm_send_completion_callback_t callback,
                       void *context);

/**
 * Discards the messages that were sent to a port with a priority and not accepted there. Their
 * callbacks get GM_SEND_DROPPED. Later sends are not affected. Takes a send token.
 */
void gm_drop_sends(struct gm_port *port,
                   unsigned int priority,
                   unsigned int target_node_id,
                   unsigned int target_port_id,
                   gm_send_completion_callback_t callback,
                   void *context);

/**
 * Registers `length` bytes: other processes may read and write them if the port allows it. The
 * same bytes may be registered more than once.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_register_memory(struct gm_port *port, void *ptr, gm_size_t length);

/**
 * Does the same as gm_register_memory(). `pvma`, the address for other processes, must be that of
 * the memory.
 *
 * Errors: those of gm_register_memory().
 */
gm_status_t gm_register_memory_ex(struct gm_port *port, void *ptr, gm_size_t length, void *pvma);

/**
 * Ends one registration of exactly these bytes. After the return no other process accesses them,
 * unless another registration covers them.
 *
 * Errors: GM_INVALID_PARAMETER when they were not registered, GM_UNATTACHED.
 */
gm_status_t gm_deregister_memory(struct gm_port *port, void *ptr, gm_size_t length);

/**
 * Allocates `length` bytes of registered memory. Returns null if there is no memory. Free it with
 * gm_dma_free().
 */
void *gm_dma_malloc(struct gm_port *port, gm_size_t length);

/**
 * Allocates `count` times `length` bytes like gm_dma_malloc(), filled with zeros.
 */
void *gm_dma_calloc(struct gm_port *port, gm_size_t count, gm_size_t length);

/**
 * Frees memory from gm_dma_malloc() or gm_dma_calloc(). Does nothing for null. Memory of pending
 * sends is kept until they end, so that their receivers get the bytes. Memory that other processes
 * read or write is kept too.
 */
void gm_dma_free(struct gm_port *port, void *ptr);

/**
 * Allocates at least `length` bytes of zeros in whole pages. Returns null if there is no memory.
 * The memory is not registered. Free it with gm_free_pages().
 */
void *gm_alloc_pages(gm_size_t length);

/**
 * Frees the `length` bytes that gm_alloc_pages() has returned. Does nothing for null.
 */
void gm_free_pages(void *ptr, gm_size_t length);

/**
 * Copies `length` bytes from `from` to `to`, which may overlap.
 */
void gm_bcopy(const void *from, void *to, gm_size_t length);

/**
 * Fills `length` bytes with zeros.
 */
void gm_bzero(void *ptr, gm_size_t length);

/**
 * Prepares the memory of an alarm. Call this before the alarm is set for the first time.
 */
void gm_initialize_alarm(struct gm_alarm *alarm);

/**
 * Makes gm_unknown() call `callback` with `context` after `microseconds`. If the alarm is set
 * already, it is set again.
 */
void gm_set_alarm(struct gm_port *port,
                  struct gm_alarm *alarm,
                  uint64_t microseconds,
                  gm_alarm_callback_t callback,
                  void *context);

/**
 * Cancels an alarm, even if it is due. Does nothing if the alarm is not set.
 */
void gm_cancel_alarm(struct gm_alarm *alarm);

/**
 * Stores the number of this process's node in `node_id`.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_node_id(struct gm_port *port, unsigned int *node_id);

/**
 * Stores the name of this process's node in `name`, which has GM_MAX_HOST_NAME_LEN bytes.
 *
 * Errors: GM_INVALID_PARAMETER, GM_OUTPUT_BUFFER_TOO_SMALL, GM_UNATTACHED.
 */
gm_status_t gm_get_host_name(struct gm_port *port, char *name);

/**
 * Returns the name of a node, which must not be changed, or null if there is no such node.
 */
char *gm_node_id_to_host_name(struct gm_port *port, unsigned int node);

/**
 * Stores the name of a node in `name`. No other process is involved, so `timeout` is ignored.
 *
 * Errors: those of gm_get_host_name().
 */
gm_status_t gm_node_id_to_host_name_ex(struct gm_port *port,
                                       unsigned int _timeout,
                                       unsigned int node,
                                       char (*name)[129]);

/**
 * Stores the number of the node with that name in `node`. No other process is involved, so
 * `timeout` is ignored.
 *
 * Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_host_name_to_node_id_ex(struct gm_port *port,
                                       unsigned int _timeout,
                                       const char *name,
                                       unsigned int *node);

/**
 * Returns the number of the node with that name, or GM_NO_SUCH_NODE_ID.
 */
unsigned int gm_host_name_to_node_id(struct gm_port *port, const char *name);

/**
 * Stores the number of this process's board in `board_id`, which has 6 bytes.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_unique_board_id(struct gm_port *port, char *board_id);

/**
 * Stores the number of the board of the job's first node in `board_id`, which has 6 bytes. That
 * node has no special role.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_get_mapper_unique_id(struct gm_port *port, char *board_id);

/**
 * Stores the number of a node's board in `board_id`, which has 6 bytes.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_node_id_to_unique_id(struct gm_port *port, unsigned int node, char *board_id);

/**
 * Stores the number of the node with that board in `node`.
 *
 * Errors: GM_NO_MATCH, GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_unique_id_to_node_id(struct gm_port *port, const char *board_id, unsigned int *node);

/**
 * Stores the global number of a node in `global`. It is the same number.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_node_id_to_global_id(struct gm_port *port, unsigned int node, unsigned int *global);

/**
 * Stores the local number of the node with a global number in `node`. It is the same number.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_global_id_to_node_id(struct gm_port *port, unsigned int global, unsigned int *node);

/**
 * Stores the highest number that a node may have in `node`.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_max_node_id(struct gm_port *port, unsigned int *node);

/**
 * Stores the highest number of a node of this job in `node`.
 *
 * Errors: GM_INVALID_PARAMETER, GM_UNATTACHED.
 */
gm_status_t gm_max_node_id_in_use(struct gm_port *port, unsigned int *node);

/**
 * Returns the time since an unspecified moment in units of 0.5 µs, as in GM.
 */
uint64_t gm_ticks(struct gm_port *_port);

/**
 * Sleeps for `seconds` and returns 0.
 */
int gm_sleep(unsigned int seconds);

/**
 * Exits the process: with exit status 0 for GM_SUCCESS, otherwise with 1.
 */
void gm_exit(gm_status_t status);

/**
 * Ends all processes of the job.
 */
void gm_abort(void);

/**
 * Returns the id of this process.
 */
unsigned int gm_getpid(void);

/**
 * Prints `message`, a colon and the meaning of `status` to standard error.
 */
void gm_perror(const char *message, gm_status_t status);

/**
 * Prints `length` bytes as hexadecimal numbers, 16 per line, to standard output.
 */
void gm_hex_dump(const void *ptr, gm_size_t length);

/**
 * Returns the exponent of the smallest power of two that is at least `number`.
 */
unsigned long gm_log2_roundup(unsigned long number);

/**
 * Creates a hash table for at least `min_entries` entries, which grows. Keys of `key_len` bytes
 * and data of `data_len` bytes are copied. With length 0 they are addresses, which the table keeps
 * unchanged. Keys are compared by `compare` and numbered by `hash`; if these are null, by their
 * bytes or addresses. `flags` must be 0, otherwise returns null.
 */
struct gm_hash *gm_create_hash(gm_hash_compare_t compare,
                               gm_hash_function_t hash,
                               gm_size_t key_len,
                               gm_size_t data_len,
                               gm_size_t min_entries,
                               int flags);

/**
 * Frees a hash table. Does nothing for null.
 */
void gm_destroy_hash(struct gm_hash *hash);

/**
 * Adds an entry.
 *
 * Errors: GM_INVALID_PARAMETER when `hash` is null; GM_BUSY when there is an entry with that key.
 */
gm_status_t gm_hash_insert(struct gm_hash *hash, void *key, void *datum);

/**
 * Returns the datum of the entry with that key, or null.
 */
void *gm_hash_find(struct gm_hash *hash, void *key);

/**
 * Removes the entry with that key. Returns its datum, which stays valid until the next removal, or
 * null.
 */
void *gm_hash_remove(struct gm_hash *hash, void *key);

/**
 * Gives an entry another key. Does nothing if there is no such entry, or if the new key is in use.
 */
void gm_hash_rekey(struct gm_hash *hash, void *old_key, void *new_key);

/**
 * Compares the addresses `key1` and `key2`: returns a negative number, 0 or a positive one.
 */
long gm_hash_compare_ptrs(void *key1, void *key2);

/**
 * Returns a number for the address `key`.
 */
unsigned long gm_hash_hash_ptr(void *key);

/**
 * Compares the numbers of type int at `key1` and `key2`.
 */
long gm_hash_compare_ints(void *key1, void *key2);

/**
 * Returns a number for the number of type int at `key`.
 */
unsigned long gm_hash_hash_int(void *key);

/**
 * Compares the numbers of type long at `key1` and `key2`.
 */
long gm_hash_compare_longs(void *key1, void *key2);

/**
 * Hashes the `long` at `key`.
 */
unsigned long gm_hash_hash_long(void *key);

/**
 * Compares the strings at `key1` and `key2`.
 */
long gm_hash_compare_strings(void *key1, void *key2);

/**
 * Returns a number for the string at `key`.
 */
unsigned long gm_hash_hash_string(void *key);

/**
 * Creates a list of entries of `entry_len` bytes, with `min_entries` allocated at once. Returns
 * null if there is no memory.
 */
struct gm_lookaside *gm_create_lookaside(gm_size_t entry_len, gm_size_t min_entries);

/**
 * Frees a list. Does nothing for null. Entries that the program still has stay valid until it
 * frees them.
 */
void gm_destroy_lookaside(struct gm_lookaside *list);

/**
 * Allocates an entry of a list. Returns null if there is no memory.
 */
void *gm_lookaside_alloc(struct gm_lookaside *list);

/**
 * Allocates an entry filled with zeros.
 */
void *gm_lookaside_zalloc(struct gm_lookaside *list);

/**
 * Returns an entry to its list. Does nothing for null.
 */
void gm_lookaside_free(void *entry);

/**
 * Returns the checksum of `length` bytes; that of no bytes if `ptr` is null.
 */
unsigned long gm_crc(const void *ptr, gm_size_t length);

/**
 * Returns the checksum of a string without its zero; that of no bytes if `string` is null.
 */
unsigned long gm_crc_str(const char *string);

/**
 * Creates an unlocked lock.
 */
struct gm_mutex *gm_create_mutex(void);

/**
 * Frees a lock, which must be unlocked. Does nothing for null.
 */
void gm_destroy_mutex(struct gm_mutex *mutex);

/**
 * Locks a lock. Waits while another thread holds it.
 */
void gm_mutex_enter(struct gm_mutex *mutex);

/**
 * Unlocks a lock that this thread has locked. Does nothing if it is not locked.
 */
void gm_mutex_exit(struct gm_mutex *mutex);

/**
 * Creates a set with room for `init_count` marks, which grows.
 *
 * Errors: GM_INVALID_PARAMETER when `set` is null, GM_OUT_OF_MEMORY.
 */
gm_status_t gm_create_mark_set(struct gm_mark_set **set, unsigned long init_count);

/**
 * Frees a set. Does nothing for null.
 */
void gm_destroy_mark_set(struct gm_mark_set *set);

/**
 * Adds `mark` to the set.
 *
 * Errors: GM_INVALID_PARAMETER when an argument is null.
 */
gm_status_t gm_mark(struct gm_mark_set *set, gm_mark_t *mark);

/**
 * Returns 1 if `mark` is in the set, and 0 otherwise.
 */
int gm_mark_is_valid(struct gm_mark_set *set, gm_mark_t *mark);

/**
 * Removes `mark` from the set.
 */
void gm_unmark(struct gm_mark_set *set, gm_mark_t *mark);

/**
 * Removes all marks from the set.
 */
void gm_unmark_all(struct gm_mark_set *set);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GM_H */

typedef struct gm_recv_event_fields gm_recv_t;

/* Conversion of characters, short, long and longer integers, without a sign. */
#define gm_ntohc(value) gm_ntoh_u8(value)
#define gm_ntohs(value) gm_ntoh_u16(value)
#define gm_ntohl(value) gm_ntoh_u32(value)
#define gm_ntohll(value) gm_ntoh_u64(value)
#define gm_htonc(value) gm_hton_u8(value)
#define gm_htons(value) gm_hton_u16(value)
#define gm_htonl(value) gm_hton_u32(value)
#define gm_htonll(value) gm_hton_u64(value)

/* The type of an event, a number such as GM_RECV_EVENT. */
#define GM_RECV_EVENT_TYPE(event) gm_ntoh_u8((event)->recv.type)

/* What a program prints. */
#define gm_printf printf
#define gm_eprintf(...) fprintf(stderr, __VA_ARGS__)
