/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Portolan: fast messages between the processes of parallel programs.
 *
 * Generated from interfaces/capi by cbindgen: do not edit. Every function returns a negative
 * PORTOLAN_ERR_... on failure, and 0 or what its description says on success;
 * portolan_last_error() tells the cause. See portolan(7).
 */

#ifndef PORTOLAN_H
#define PORTOLAN_H

#include <stddef.h>
#include <stdint.h>

/* Begins a structure that the library fills: its size is how the library knows the program's
 * version of it. Example: portolan_received_t got = PORTOLAN_SIZED(portolan_received_t); */
#ifdef __cplusplus
#define PORTOLAN_SIZED(type) ([] { type made{}; made.size = sizeof made; return made; }())
#else
#define PORTOLAN_SIZED(type) ((type){.size = sizeof(type)})
#endif

/**
 * The interface's version: raised when something is added; programs that were built with a lower
 * number go on working.
 */
#define PORTOLAN_ABI_VERSION 1

/**
 * Success.
 */
#define PORTOLAN_OK 0

/**
 * Of portolan_test(): the operation is still under way.
 */
#define PORTOLAN_PENDING 1

/**
 * A pointer that is needed is null.
 */
#define PORTOLAN_ERR_NULL -1

/**
 * An argument is out of its range.
 */
#define PORTOLAN_ERR_ARGUMENT -2

/**
 * The size in front of a structure is not that of any version of it.
 */
#define PORTOLAN_ERR_STRUCT_SIZE -3

/**
 * What was given as a node or a group is none.
 */
#define PORTOLAN_ERR_HANDLE -4

/**
 * The node was closed, or the group freed.
 */
#define PORTOLAN_ERR_CLOSED -5

/**
 * The node belongs to another thread; portolan_adopt() changes that.
 */
#define PORTOLAN_ERR_WRONG_THREAD -6

/**
 * This function cannot be called from a handler, or from a condition of portolan_wait_until().
 */
#define PORTOLAN_ERR_IN_HANDLER -7

/**
 * The library has a bug; the node cannot be used any more.
 */
#define PORTOLAN_ERR_INTERNAL -8

/**
 * A port number is above 65535.
 */
#define PORTOLAN_ERR_PORT -9

/**
 * The program that should have started this one is gone, or of another version.
 */
#define PORTOLAN_ERR_LAUNCH -10

/**
 * A link could not be opened.
 */
#define PORTOLAN_ERR_LINK -11

/**
 * The system refused something.
 */
#define PORTOLAN_ERR_SYSTEM -12

/**
 * A setting has a value that cannot be, or there is no setting of that name.
 */
#define PORTOLAN_ERR_SETTING -13

/**
 * There is no option of that name.
 */
#define PORTOLAN_ERR_NO_OPTION -14

/**
 * This process was forked after its parent had joined; the node is the parent's.
 */
#define PORTOLAN_ERR_FORKED -15

/**
 * There is no such rank.
 */
#define PORTOLAN_ERR_NO_SUCH_RANK -20

/**
 * The process at the other end is gone.
 */
#define PORTOLAN_ERR_PEER_GONE -21

/**
 * No link leads to the process.
 */
#define PORTOLAN_ERR_NO_PATH -22

/**
 * The process did not answer.
 */
#define PORTOLAN_ERR_NO_ANSWER -23

/**
 * A process that may live may not have got all that was sent to it.
 */
#define PORTOLAN_ERR_UNDELIVERED -24

/**
 * Every other process of the job has ended: nothing can come any more.
 */
#define PORTOLAN_ERR_NOBODY_LEFT -25

/**
 * Too much that this process has sent to itself waits to be received.
 */
#define PORTOLAN_ERR_SELF_FULL -26

/**
 * The message was longer than the buffer, which has its first bytes.
 */
#define PORTOLAN_ERR_TRUNCATED -30

/**
 * The receiver gave the message up.
 */
#define PORTOLAN_ERR_REFUSED -31

/**
 * The port is not open.
 */
#define PORTOLAN_ERR_PORT_CLOSED -32

/**
 * The port is open already, or has a handler.
 */
#define PORTOLAN_ERR_PORT_IN_USE -33

/**
 * The request was completed before, or never was one.
 */
#define PORTOLAN_ERR_STALE_REQUEST -34

/**
 * The operation was withdrawn.
 */
#define PORTOLAN_ERR_CANCELLED -35

/**
 * Members of a group gave different numbers of values.
 */
#define PORTOLAN_ERR_LENGTH_MISMATCH -36

/**
 * There is no claim of that number.
 */
#define PORTOLAN_ERR_NO_CLAIM -37

/**
 * Members of a group called different collective operations.
 */
#define PORTOLAN_ERR_COLLECTIVE_MISMATCH -38

/**
 * The group has two collective operations under way, and cannot begin a third.
 */
#define PORTOLAN_ERR_GROUP_BUSY -39

/**
 * What was waited for is behind messages that nobody has received, and the memory for those is full:
 * receive them first, or raise the setting unexpected_memory.
 */
#define PORTOLAN_ERR_NO_MEMORY -42

/**
 * The process at the other end refused access to its memory: there is no region with that key, or
 * the place is outside of it, or others may not do that with it.
 */
#define PORTOLAN_ERR_REMOTE_REFUSED -40

/**
 * There is no region of this process with that key.
 */
#define PORTOLAN_ERR_NO_REGION -41

/**
 * An error that this version has no number for.
 */
#define PORTOLAN_ERR_OTHER -99

/**
 * From any rank.
 */
#define PORTOLAN_ANY_SOURCE 4294967295

/**
 * Of sends: on the lane of what must not wait behind ordinary traffic.
 */
#define PORTOLAN_HIGH 1

/**
 * Of sends: without repair. What is lost is counted at the receiver, and a message that finds no
 * buffer there is dropped. A message of several frames arrives whole or not at all. Messages of more
 * than 64 KiB, and those that fill a frame of shared memory, are sent reliably all the same.
 */
#define PORTOLAN_BEST_EFFORT 2

/**
 * Of portolan_open_active(): the handler gets messages where they lie, without a posted buffer.
 */
#define PORTOLAN_IN_PLACE 1

/**
 * Of reductions and atomic operations: the sum; whole numbers wrap around.
 */
#define PORTOLAN_SUM 0

/**
 * The product; whole numbers wrap around.
 */
#define PORTOLAN_PRODUCT 1

/**
 * The least.
 */
#define PORTOLAN_MIN 2

/**
 * The greatest.
 */
#define PORTOLAN_MAX 3

/**
 * Of atomic operations, from here on: bits that both numbers have. Whole numbers only, as the next
 * two.
 */
#define PORTOLAN_BIT_AND 4

/**
 * Bits that either has.
 */
#define PORTOLAN_BIT_OR 5

/**
 * Bits that one has.
 */
#define PORTOLAN_BIT_XOR 6

/**
 * 1 if neither is 0, else 0.
 */
#define PORTOLAN_LOGICAL_AND 7

/**
 * 1 if one is not 0, else 0.
 */
#define PORTOLAN_LOGICAL_OR 8

/**
 * 1 if exactly one is not 0, else 0.
 */
#define PORTOLAN_LOGICAL_XOR 9

/**
 * The operand.
 */
#define PORTOLAN_WRITE 10

/**
 * The number as it is, for what is returned. Has no operands.
 */
#define PORTOLAN_READ 11

/**
 * The operand if the number is equal to the compared one.
 */
#define PORTOLAN_SWAP_IF_EQUAL 12

/**
 * The operand if the compared number is another.
 */
#define PORTOLAN_SWAP_IF_NOT_EQUAL 13

/**
 * The operand if the compared number is less than the number.
 */
#define PORTOLAN_SWAP_IF_LESS 14

/**
 * The operand if the compared number is not greater.
 */
#define PORTOLAN_SWAP_IF_NOT_GREATER 15

/**
 * The operand if the compared number is greater.
 */
#define PORTOLAN_SWAP_IF_GREATER 16

/**
 * The operand if the compared number is not less.
 */
#define PORTOLAN_SWAP_IF_NOT_LESS 17

/**
 * The operand's bits where the compared number has ones. Whole numbers only.
 */
#define PORTOLAN_SWAP_MASKED 18

/**
 * int8_t; of atomic operations only, as all of 8 and 16 bits.
 */
#define PORTOLAN_INT8 0

/**
 * uint8_t
 */
#define PORTOLAN_UINT8 1

/**
 * int16_t
 */
#define PORTOLAN_INT16 2

/**
 * uint16_t
 */
#define PORTOLAN_UINT16 3

/**
 * int32_t
 */
#define PORTOLAN_INT32 4

/**
 * uint32_t
 */
#define PORTOLAN_UINT32 5

/**
 * int64_t
 */
#define PORTOLAN_INT64 6

/**
 * uint64_t
 */
#define PORTOLAN_UINT64 7

/**
 * float
 */
#define PORTOLAN_FLOAT 8

/**
 * double
 */
#define PORTOLAN_DOUBLE 9

/**
 * Of portolan_register(): others may get, and read by atomic operations.
 */
#define PORTOLAN_READ_ACCESS 1

/**
 * Of portolan_register(): others may put, and change numbers by atomic operations.
 */
#define PORTOLAN_WRITE_ACCESS 2

/**
 * Of portolan_remote_t: when a put is in place, the program there gets a notice.
 */
#define PORTOLAN_NOTIFY 4

/**
 * Of portolan_model(): none is stored, defaults hold.
 */
#define PORTOLAN_MODEL_ABSENT 0

/**
 * The stored model is used.
 */
#define PORTOLAN_MODEL_USED 1

/**
 * It was switched off by a setting, defaults hold.
 */
#define PORTOLAN_MODEL_OFF 2

/**
 * It is of no use here, as the text says, and defaults hold.
 */
#define PORTOLAN_MODEL_REFUSED 3

/**
 * Some of the processes of a job, in an order of their own.
 */
typedef struct portolan_group_t portolan_group_t;

/**
 * A process's place in its job.
 */
typedef struct portolan_node_t portolan_node_t;

/**
 * A message as a handler gets it; valid while the handler runs.
 */
typedef struct portolan_message_t {
  /**
   * Size of this structure, set by the library.
   */
  size_t size;
  /**
   * The message; when it was longer than its posted buffer, its first bytes.
   */
  const void *bytes;
  /**
   * Bytes there.
   */
  uint64_t len;
  /**
   * Bytes of the message.
   */
  uint64_t message_len;
  /**
   * The posted buffer, which is the program's again; null for messages handed over in place.
   */
  void *buffer;
  /**
   * Bytes of the posted buffer.
   */
  uint64_t buffer_len;
  /**
   * Rank of the sender.
   */
  uint32_t source;
  /**
   * The port it came to.
   */
  uint32_t port;
} portolan_message_t;

/**
 * Runs for each message to an active port, inside calls of the library. With `node` it may call
 * what begins an operation and does not wait (portolan_isend(), portolan_isend_copy(),
 * portolan_post_recv(), the same with tags, portolan_iput(), portolan_iget(), portolan_iatomic()),
 * portolan_rank() and portolan_size(); what it sends leaves when it has returned. It must return: no
 * exception, no longjmp().
 */
typedef void (*portolan_handler_t)(struct portolan_node_t *node,
                                   const struct portolan_message_t *message,
                                   void *user);

/**
 * A piece of a message. Laid out as struct iovec.
 */
typedef struct portolan_piece_t {
  /**
   * First byte; may be null when the length is 0.
   */
  const void *bytes;
  /**
   * Bytes.
   */
  size_t len;
} portolan_piece_t;

/**
 * A message that was received.
 */
typedef struct portolan_received_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Bytes of the message.
   */
  uint64_t len;
  /**
   * Rank of the sender.
   */
  uint32_t source;
} portolan_received_t;

/**
 * A non-blocking operation, to be waited for or tested. 0 is none.
 */
typedef uint64_t portolan_request_t;

/**
 * How a non-blocking operation ended.
 */
typedef struct portolan_completion_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Bytes of the message.
   */
  uint64_t len;
  /**
   * The buffer of the operation; null if it has no bytes.
   */
  void *buffer;
  /**
   * Rank of the sender; of a send, of the receiver.
   */
  uint32_t source;
  /**
   * 1 if the message was tagged and has immediate data, else 0.
   */
  uint32_t has_imm;
  /**
   * Tag of a tagged message that was received; else 0.
   */
  uint64_t tag;
  /**
   * Its immediate data; 0 if it has none.
   */
  uint64_t imm;
} portolan_completion_t;

/**
 * A tagged message, as far as it is known before it is received, or was.
 */
typedef struct portolan_envelope_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Bytes of the message.
   */
  uint64_t len;
  /**
   * Its tag.
   */
  uint64_t tag;
  /**
   * Its immediate data; 0 if it has none.
   */
  uint64_t imm;
  /**
   * Rank of the sender.
   */
  uint32_t source;
  /**
   * 1 if it has immediate data, else 0.
   */
  uint32_t has_imm;
} portolan_envelope_t;

/**
 * A message that no other receive takes any more. 0 is none.
 */
typedef uint64_t portolan_claim_t;

/**
 * A collective operation that does not wait, to be tested. 0 is none.
 */
typedef uint64_t portolan_collective_t;

/**
 * A place in the memory of another process, and with what service it is reached.
 */
typedef struct portolan_remote_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Key of the region.
   */
  uint64_t key;
  /**
   * Bytes from its beginning.
   */
  uint64_t offset;
  /**
   * Word for the notice, with PORTOLAN_NOTIFY.
   */
  uint64_t notice;
  /**
   * The process.
   */
  uint32_t rank;
  /**
   * 0, or PORTOLAN_HIGH, PORTOLAN_NOTIFY, or both.
   */
  uint32_t flags;
} portolan_remote_t;

/**
 * Tells of a put into a region of this process.
 */
typedef struct portolan_notice_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Word of the process that has put.
   */
  uint64_t word;
  /**
   * Key of the region.
   */
  uint64_t key;
  /**
   * First byte.
   */
  uint64_t offset;
  /**
   * Bytes.
   */
  uint64_t len;
  /**
   * Rank of the process that has put.
   */
  uint32_t source;
} portolan_notice_t;

/**
 * An atomic operation.
 */
typedef struct portolan_atomic_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * PORTOLAN_SUM and so on.
   */
  int operation;
  /**
   * PORTOLAN_DOUBLE and so on.
   */
  int type;
  /**
   * Numbers at the target, and of each of the arrays here.
   */
  size_t count;
  /**
   * One for each number; not used by PORTOLAN_READ.
   */
  const void *operands;
  /**
   * What the numbers are compared with, by operations that do; else not used.
   */
  const void *compare;
  /**
   * Gets the numbers as they were before; null if they are not wanted.
   */
  void *before;
} portolan_atomic_t;

/**
 * What the protocol has done so far, in this process.
 */
typedef struct portolan_counters_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Frames handed out for transmission, those that were sent again included.
   */
  uint64_t frames_sent;
  /**
   * Frames accepted.
   */
  uint64_t frames_received;
  /**
   * Frames sent again.
   */
  uint64_t retransmits;
  /**
   * Retransmission timeouts.
   */
  uint64_t timeouts;
  /**
   * Paths that were left because another answered and they did not.
   */
  uint64_t paths_left;
  /**
   * Messages accepted for sending.
   */
  uint64_t messages_sent;
  /**
   * Messages delivered.
   */
  uint64_t messages_received;
  /**
   * Payload bytes of delivered messages.
   */
  uint64_t bytes_received;
  /**
   * Messages that were held because they came early or found no buffer.
   */
  uint64_t messages_held;
  /**
   * Best-effort messages that never arrived here.
   */
  uint64_t best_effort_lost;
  /**
   * Bulk frames that were received at their place.
   */
  uint64_t placement_hits;
  /**
   * Frames that were received where another was expected.
   */
  uint64_t placement_misses;
  /**
   * Bytes that were copied to put those right.
   */
  uint64_t placement_repaired_bytes;
  /**
   * Frames whose sending a link put off.
   */
  uint64_t link_full;
  /**
   * Everything that was dropped; portolan_drops() tells it by reason.
   */
  uint64_t drops;
  /**
   * Requests for memory of this process that were dealt with.
   */
  uint64_t remote_requests;
  /**
   * Frames accepted that the network had marked as having met congestion.
   */
  uint64_t frames_marked;
  /**
   * Frames sent of which peers said that they were marked so.
   */
  uint64_t marks_heard;
  /**
   * Bytes of transfers that came by streams.
   */
  uint64_t stream_bytes;
} portolan_counters_t;

/**
 * How messages up to a length are cut when nothing waits behind them.
 */
typedef struct portolan_lone_pieces_t {
  /**
   * Last message length that this holds for.
   */
  uint64_t message_len_max;
  /**
   * Bytes of a call; 0 for whole messages.
   */
  size_t call_len;
} portolan_lone_pieces_t;

/**
 * By which path, and in which way, messages leave.
 */
typedef struct portolan_choices_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Longest message on a network that goes without asking; 0 for as long as the protocol allows.
   */
  size_t eager_len_max;
  /**
   * The same through shared memory.
   */
  size_t eager_len_max_shm;
  /**
   * Longest message of several frames that takes raw Ethernet rather than UDP.
   */
  size_t packet_len_max;
  /**
   * Pieces of lone messages, by ascending length; entries beyond the sixth are not used.
   */
  const struct portolan_lone_pieces_t *lone;
  /**
   * Entries there.
   */
  size_t lone_count;
} portolan_choices_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Name of a result, such as "PORTOLAN_ERR_NULL"; never null.
 */
const char *portolan_error_name(int code);

/**
 * What a result means, in general; never null. portolan_last_error() tells the cause.
 */
const char *portolan_strerror(int code);

/**
 * Version of the library, such as "0.1.0"; never null.
 */
const char *portolan_version(void);

/**
 * PORTOLAN_ABI_VERSION of the library that is loaded.
 */
uint32_t portolan_abi_version(void);

/**
 * Why the last function of the library that failed on this thread did so: one sentence that names
 * the thing and the cause. Valid until the next failure on this thread; empty before the first;
 * never null.
 */
const char *portolan_last_error(void);

/**
 * Joins the job that this process was started in; without a launcher, a job of one. The node
 * belongs to the thread that calls. On failure, `*node` becomes null.
 *
 * Errors: PORTOLAN_ERR_LAUNCH, PORTOLAN_ERR_LINK, PORTOLAN_ERR_SETTING, PORTOLAN_ERR_SYSTEM.
 */
int portolan_join(struct portolan_node_t **node);

/**
 * Leaves the job after all that was sent has arrived, however long its receivers take, while they
 * live; sends that have not ended get a second. Other operations that are still under way are given
 * up. The memory of all is the program's again.
 *
 * Errors: PORTOLAN_ERR_UNDELIVERED when a process that may live may not have got everything;
 * PORTOLAN_ERR_CLOSED when it was closed before.
 */
int portolan_close(struct portolan_node_t *node);

/**
 * Gives the node to the thread that calls. The one that had it must not be in a function of the
 * library, and not call one with this node any more.
 *
 * Errors: PORTOLAN_ERR_CLOSED; PORTOLAN_ERR_WRONG_THREAD while the other is in a function.
 */
int portolan_adopt(struct portolan_node_t *node);

/**
 * Rank of this process, from 0. Handlers may call it.
 */
int portolan_rank(const struct portolan_node_t *node);

/**
 * Processes in the job. Handlers may call it.
 */
int portolan_size(const struct portolan_node_t *node);

/**
 * Writes the 16 bytes of the job's random number to `id`: the same in all its processes, and others
 * in other jobs.
 */
int portolan_job_id(struct portolan_node_t *node, uint8_t *id);

/**
 * Copies the value of the program's own option `name`, which was given with
 * `portolan run --option app.NAME=VALUE`, into `value`, as far as it fits, with a zero behind it.
 * Returns its length without the zero.
 *
 * Errors: PORTOLAN_ERR_NO_OPTION.
 */
int portolan_option(struct portolan_node_t *node, const char *name, char *value, size_t value_len);

/**
 * Ends the whole job with exit status `status`, because of `reason`; this process, too, should end
 * then.
 */
int portolan_abort(struct portolan_node_t *node, int status, const char *reason);

/**
 * Calls `tell` with a description of each path to process `rank` that was tried so far: the link,
 * its state, its round trip. The text is valid during that call. Returns how many there are.
 */
int portolan_paths(struct portolan_node_t *node,
                   uint32_t rank,
                   void (*tell)(const char *path, void *user),
                   void *user);

/**
 * Opens a port for portolan_recv() and portolan_post_recv(). Messages that came before wait.
 *
 * Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE.
 */
int portolan_open(struct portolan_node_t *node, uint32_t port);

/**
 * Opens a port as an active port: `handler` runs for each message, with `user` as its last
 * argument. With PORTOLAN_IN_PLACE in `flags` it gets messages where they lie; without, each goes
 * into a buffer that was posted, which the handler gets back with it.
 *
 * Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE, PORTOLAN_ERR_ARGUMENT for unknown flags.
 */
int portolan_open_active(struct portolan_node_t *node,
                         uint32_t port,
                         uint32_t flags,
                         portolan_handler_t handler,
                         void *user);

/**
 * Sends `len` bytes to `port` of process `rank`; when it returns, they may be used again. Short
 * messages are copied and on their way then; long ones have arrived. `flags`: 0, or PORTOLAN_HIGH,
 * PORTOLAN_BEST_EFFORT, or both. A message may have no bytes at all.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_NO_PATH, PORTOLAN_ERR_NO_ANSWER,
 * PORTOLAN_ERR_PEER_GONE.
 */
int portolan_send(struct portolan_node_t *node,
                  uint32_t rank,
                  uint32_t port,
                  const void *buffer,
                  size_t len,
                  uint32_t flags);

/**
 * Sends `count` pieces as one message, as portolan_send().
 *
 * Errors: those of portolan_send().
 */
int portolan_send_gather(struct portolan_node_t *node,
                         uint32_t rank,
                         uint32_t port,
                         const struct portolan_piece_t *pieces,
                         size_t count,
                         uint32_t flags);

/**
 * Waits for the next message to `port` from process `source`, or from any with
 * PORTOLAN_ANY_SOURCE, and fills `*received`, which may be null.
 *
 * Errors: PORTOLAN_ERR_PORT_CLOSED, PORTOLAN_ERR_PORT_IN_USE for a port with a handler,
 * PORTOLAN_ERR_NO_MEMORY; PORTOLAN_ERR_TRUNCATED, with `*received` filled; with a `source`,
 * PORTOLAN_ERR_NO_SUCH_RANK and PORTOLAN_ERR_PEER_GONE, without, PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_recv(struct portolan_node_t *node,
                  uint32_t port,
                  uint32_t source,
                  void *buffer,
                  size_t len,
                  struct portolan_received_t *received);

/**
 * Begins to send, and returns at once. The `len` bytes must stay as they are until the operation
 * has ended, which portolan_wait() or portolan_test() must be asked for `*request`. Short messages
 * of a burst gather, and leave with the next call that waits or makes progress. Handlers may call
 * it.
 *
 * Errors: those of portolan_send().
 */
int portolan_isend(struct portolan_node_t *node,
                   uint32_t rank,
                   uint32_t port,
                   const void *buffer,
                   size_t len,
                   uint32_t flags,
                   portolan_request_t *request);

/**
 * Begins to send a copy of `len` bytes; there is nothing to wait for. Leaves as portolan_isend().
 * Handlers may call it.
 *
 * Errors: those of portolan_send().
 */
int portolan_isend_copy(struct portolan_node_t *node,
                        uint32_t rank,
                        uint32_t port,
                        const void *buffer,
                        size_t len,
                        uint32_t flags);

/**
 * Posts a buffer for the next message to `port` from process `source`, or from any with
 * PORTOLAN_ANY_SOURCE. Nobody may use it until the operation has ended. At a port with a handler,
 * the handler gets it: there is nothing to wait for, and `request` may be null; elsewhere not.
 * Handlers may call it, with PORTOLAN_ANY_SOURCE.
 *
 * Errors: PORTOLAN_ERR_PORT_CLOSED; PORTOLAN_ERR_NO_SUCH_RANK; PORTOLAN_ERR_NULL.
 */
int portolan_post_recv(struct portolan_node_t *node,
                       uint32_t port,
                       uint32_t source,
                       void *buffer,
                       size_t len,
                       portolan_request_t *request);

/**
 * Waits until an operation has ended, and fills `*completion`, which may be null.
 *
 * Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_NOBODY_LEFT, PORTOLAN_ERR_REFUSED;
 * PORTOLAN_ERR_TRUNCATED, with `*completion` filled but for its buffer;
 * PORTOLAN_ERR_STALE_REQUEST when it was completed before, or its port has a handler.
 */
int portolan_wait(struct portolan_node_t *node,
                  portolan_request_t request,
                  struct portolan_completion_t *completion);

/**
 * Waits until all of `count` operations have ended; those that are 0 count as ended. Each is set
 * to 0. Returns the first failure, if there is one, after all have ended.
 *
 * Errors: those of portolan_wait().
 */
int portolan_wait_all(struct portolan_node_t *node, portolan_request_t *requests, size_t count);

/**
 * Makes progress once. Returns 0 when the operation has ended, as portolan_wait(), and
 * PORTOLAN_PENDING while it is under way.
 *
 * Errors: those of portolan_wait().
 */
int portolan_test(struct portolan_node_t *node,
                  portolan_request_t request,
                  struct portolan_completion_t *completion);

/**
 * Receives and sends what is ready, runs handlers, and returns at once: how many frames moved.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when all other processes of the job have ended and nothing of
 * theirs is left to be taken in: whoever polls for more would poll for ever.
 */
int portolan_progress(struct portolan_node_t *node);

/**
 * Sends everything that has gathered.
 */
int portolan_flush(struct portolan_node_t *node);

/**
 * Sends `len` bytes to process `rank`, to be matched there by `tag`, as portolan_send(). With `imm`
 * not null, the receiver gets that word beside the message. `flags`: 0 or PORTOLAN_HIGH. Messages
 * to one rank and lane are matched in the order in which they were sent, whether they go to ports
 * or are tagged.
 *
 * Errors: those of portolan_send().
 */
int portolan_send_tagged(struct portolan_node_t *node,
                         uint32_t rank,
                         uint64_t tag,
                         const uint64_t *imm,
                         const void *buffer,
                         size_t len,
                         uint32_t flags);

/**
 * Begins to send as portolan_send_tagged(), and returns at once; see portolan_isend(). Handlers may
 * call it.
 *
 * Errors: those of portolan_send().
 */
int portolan_isend_tagged(struct portolan_node_t *node,
                          uint32_t rank,
                          uint64_t tag,
                          const uint64_t *imm,
                          const void *buffer,
                          size_t len,
                          uint32_t flags,
                          portolan_request_t *request);

/**
 * Begins to send a copy, as portolan_isend_copy(), to be matched by `tag`. Handlers may call it.
 *
 * Errors: those of portolan_send().
 */
int portolan_isend_tagged_copy(struct portolan_node_t *node,
                               uint32_t rank,
                               uint64_t tag,
                               const uint64_t *imm,
                               const void *buffer,
                               size_t len,
                               uint32_t flags);

/**
 * Posts a buffer for the first message with `tag`, whatever its bits in `ignore` are, from process
 * `source`, or from any with PORTOLAN_ANY_SOURCE, that no earlier receive takes. See
 * portolan_post_recv(). Handlers may call it.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK.
 */
int portolan_post_recv_tagged(struct portolan_node_t *node,
                              uint64_t tag,
                              uint64_t ignore,
                              uint32_t source,
                              void *buffer,
                              size_t len,
                              portolan_request_t *request);

/**
 * Waits for the first message that portolan_post_recv_tagged() would take, and fills `*envelope`,
 * which may be null.
 *
 * Errors: PORTOLAN_ERR_TRUNCATED, with `*envelope` filled; PORTOLAN_ERR_NO_MEMORY,
 * PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_recv_tagged(struct portolan_node_t *node,
                         uint64_t tag,
                         uint64_t ignore,
                         uint32_t source,
                         void *buffer,
                         size_t len,
                         struct portolan_envelope_t *envelope);

/**
 * Makes progress once, and looks for the first message that has come and that a receive would take:
 * 1 if there is one, which goes on waiting, with its `*envelope`; else 0.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_NO_MEMORY; when there is none and none can come any
 * more, PORTOLAN_ERR_PEER_GONE with a `source`, without PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_peek(struct portolan_node_t *node,
                  uint64_t tag,
                  uint64_t ignore,
                  uint32_t source,
                  struct portolan_envelope_t *envelope);

/**
 * As portolan_peek(), but takes the message from all other receives, for portolan_recv_claimed(). A
 * message that is claimed and never received keeps its memory.
 *
 * Errors: those of portolan_peek().
 */
int portolan_claim(struct portolan_node_t *node,
                   uint64_t tag,
                   uint64_t ignore,
                   uint32_t source,
                   struct portolan_envelope_t *envelope,
                   portolan_claim_t *claim);

/**
 * Posts a buffer for a message that was claimed. One without bytes discards the message: the request
 * ends with PORTOLAN_ERR_TRUNCATED unless the message is empty as well.
 *
 * Errors: PORTOLAN_ERR_NO_CLAIM when it was received before, or never was one.
 */
int portolan_recv_claimed(struct portolan_node_t *node,
                          portolan_claim_t claim,
                          void *buffer,
                          size_t len,
                          portolan_request_t *request);

/**
 * Withdraws a posted receive, tagged or at a port without a handler: 1, and it ends with
 * PORTOLAN_ERR_CANCELLED. 0 for a send, or when a message has matched the receive: then it ends by
 * itself. Either way it must be waited for.
 */
int portolan_cancel(struct portolan_node_t *node, portolan_request_t request);

/**
 * Makes progress, and sleeps between, until `done` returns anything but 0. It is called after each
 * turn, so it must depend on what handlers change.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when `done` still returns 0 and no handler will run any more, since
 * all other processes of the job have ended.
 */
int portolan_wait_until(struct portolan_node_t *node,
                        int (*done)(void *user),
                        void *user);

/**
 * The descriptor for a program's own event loop, to be waited for until it is readable. Call
 * portolan_arm() before each wait and portolan_disarm() after it; never read from it, nor close it.
 */
int portolan_event_fd(struct portolan_node_t *node);

/**
 * Makes portolan_event_fd() readable as soon as there is something to do here. Returns 1, or 0
 * when there is already: do not wait then, call portolan_progress() and look at what has ended.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when the descriptor would stay silent, since all other processes of
 * the job have ended.
 */
int portolan_arm(struct portolan_node_t *node);

/**
 * Ends what portolan_arm() began, and does what has become due.
 */
int portolan_disarm(struct portolan_node_t *node);

/**
 * Makes a group of `count` processes, under the number `id`, from 1 to 32766, which all members,
 * and no other group, must use. Members must name the same ranks in the same order.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK; PORTOLAN_ERR_SETTING when this process is not among them, one
 * is there twice, or the number is out of its range.
 */
int portolan_group_new(struct portolan_node_t *node,
                       uint32_t id,
                       const uint32_t *ranks,
                       size_t count,
                       struct portolan_group_t **group);

/**
 * Frees a group; null is nothing.
 *
 * Errors: PORTOLAN_ERR_CLOSED when it was freed before.
 */
int portolan_group_free(struct portolan_group_t *group);

/**
 * This process's place in the group, from 0.
 */
int portolan_group_rank(const struct portolan_group_t *group);

/**
 * Members of the group.
 */
int portolan_group_size(const struct portolan_group_t *group);

/**
 * Waits until every member of the group, or with null every process of the job, has come here. All
 * members make the same calls on a group in the same order. When they do not, or one of them is gone,
 * every member's call fails and says who did what, and so does every later call on that group.
 *
 * Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_COLLECTIVE_MISMATCH, PORTOLAN_ERR_LENGTH_MISMATCH,
 * PORTOLAN_ERR_GROUP_BUSY.
 */
int portolan_barrier(struct portolan_node_t *node,
                     const struct portolan_group_t *group);

/**
 * Copies `len` bytes of member `root` into those of all other members of the group, or with null
 * of the job. All must give the same length. The root does not wait for all: it may hear of a failure
 * from a later call.
 *
 * But 32 KiB or more to 3 to 64 processes on three hosts or more of one IPv4 network go once over the
 * root's wire, by UDP multicast, where all hosts hear it, and the root waits until all have them.
 * PORTOLAN_MULTICAST=off in the environment keeps them to messages, as shorter ones.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK, those of portolan_barrier().
 */
int portolan_broadcast(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       uint32_t root,
                       void *buffer,
                       size_t len);

/**
 * Copies `len` bytes of member `root` into those of all other members of the group, or with null
 * of the job, as portolan_broadcast(), and faster for some megabytes or more: each member passes
 * them on to the next, in the order of the group, block by block.
 *
 * Errors: those of portolan_broadcast().
 */
int portolan_cast(struct portolan_node_t *node,
                  const struct portolan_group_t *group,
                  uint32_t root,
                  void *buffer,
                  size_t len);

/**
 * Combines `count` values of each member of the group, or with null of the job, element by element;
 * every member gets the same result, bit for bit, in their place. `operation` is PORTOLAN_SUM and
 * so on, `type` PORTOLAN_DOUBLE and so on; all members must give the same.
 *
 * Errors: those of portolan_barrier().
 */
int portolan_allreduce(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       int operation,
                       int type,
                       void *values,
                       size_t count);

/**
 * Combines values as portolan_allreduce(), for member `root` only; at all others they hold parts of
 * the result afterwards.
 *
 * Errors: those of portolan_allreduce(), PORTOLAN_ERR_NO_SUCH_RANK.
 */
int portolan_reduce(struct portolan_node_t *node,
                    const struct portolan_group_t *group,
                    uint32_t root,
                    int operation,
                    int type,
                    void *values,
                    size_t count);

/**
 * Begins a barrier of the group, or with null of the job, and returns at once. It ends when every
 * member has begun it, which portolan_test_collective() must be asked for `*collective`. A group
 * has two collective operations under way at most, which all members begin in the same order.
 *
 * Errors: those of portolan_barrier().
 */
int portolan_ibarrier(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      portolan_collective_t *collective);

/**
 * Begins a broadcast as portolan_broadcast(), and returns at once; see portolan_ibarrier(). At the
 * root the bytes must stay as they are until it has ended, elsewhere nobody may use them.
 *
 * Errors: those of portolan_broadcast().
 */
int portolan_ibroadcast(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        uint32_t root,
                        void *buffer,
                        size_t len,
                        portolan_collective_t *collective);

/**
 * Makes progress once. Returns 0 when this process has done its part of a collective operation, and
 * PORTOLAN_PENDING while it is under way. One that fails has ended.
 *
 * Errors: those of portolan_broadcast(); PORTOLAN_ERR_STALE_REQUEST when it ended before, or never
 * was one.
 */
int portolan_test_collective(struct portolan_node_t *node, portolan_collective_t collective);

/**
 * Allocates `len` bytes that suit bulk messages best: whole pages, all of them present, large ones
 * where the system has them. They are zero.
 */
int portolan_alloc(size_t len, void **memory);

/**
 * Whether portolan_alloc() gave this memory in large pages, as far as the system tells: 1 or 0.
 * From 2 MiB on it asks for them.
 *
 * Errors: PORTOLAN_ERR_ARGUMENT for other memory.
 */
int portolan_has_large_pages(const void *memory);

/**
 * Frees what portolan_alloc() gave; null is nothing. No operation may be using it.
 */
int portolan_free(void *memory);

/**
 * Opens `len` bytes of memory to all processes of the job that are told `*key`, which nobody can
 * guess. `access`: PORTOLAN_READ_ACCESS, PORTOLAN_WRITE_ACCESS or both. The program may go on using
 * the memory; what others change there appears during calls of the library or, within a host, at
 * any time. It must stay until portolan_deregister() or portolan_close().
 *
 * Errors: PORTOLAN_ERR_ARGUMENT, PORTOLAN_ERR_NULL.
 */
int portolan_register(struct portolan_node_t *node,
                      void *memory,
                      size_t len,
                      uint32_t access,
                      uint64_t *key);

/**
 * Closes a region. Whoever uses it meanwhile, or later, gets PORTOLAN_ERR_REMOTE_REFUSED.
 *
 * Errors: PORTOLAN_ERR_NO_REGION.
 */
int portolan_deregister(struct portolan_node_t *node, uint64_t key);

/**
 * Puts `len` bytes into the memory of another process; when it returns, they are there. What is
 * sent behind a put to the same process, on the same lane, finds its bytes in place. Of two
 * operations that are longer than 64 KiB (16 KiB within a host) and touch the same bytes, the
 * second must wait for the end of the first.
 *
 * Errors: PORTOLAN_ERR_REMOTE_REFUSED, those of portolan_send().
 */
int portolan_put(struct portolan_node_t *node,
                 const struct portolan_remote_t *to,
                 const void *buffer,
                 size_t len);

/**
 * Gets `len` bytes out of the memory of another process.
 *
 * Errors: those of portolan_put().
 */
int portolan_get(struct portolan_node_t *node,
                 const struct portolan_remote_t *from,
                 void *buffer,
                 size_t len);

/**
 * Begins to put. The request ends when the bytes are in place; until then they must stay as they
 * are. Handlers may call it.
 *
 * Errors: those of portolan_put().
 */
int portolan_iput(struct portolan_node_t *node,
                  const struct portolan_remote_t *to,
                  const void *buffer,
                  size_t len,
                  portolan_request_t *request);

/**
 * Begins to get. Nobody may use the buffer until the request has ended. Handlers may call it.
 *
 * Errors: those of portolan_put().
 */
int portolan_iget(struct portolan_node_t *node,
                  const struct portolan_remote_t *from,
                  void *buffer,
                  size_t len,
                  portolan_request_t *request);

/**
 * Fills `*notice` from the next put that came with PORTOLAN_NOTIFY: 1, or 0 when there is none.
 * Does not make progress.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when there is none and none can come any more, since all other
 * processes of the job have ended.
 */
int portolan_next_notice(struct portolan_node_t *node, struct portolan_notice_t *notice);

/**
 * Waits for the next put that comes with PORTOLAN_NOTIFY, and fills `*notice`.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_wait_notice(struct portolan_node_t *node, struct portolan_notice_t *notice);

/**
 * Changes numbers in the memory of another process; when it returns, it is done, and `before` has
 * them as they were. Each number is changed at once; 4096 bytes of numbers at most.
 *
 * Errors: PORTOLAN_ERR_REMOTE_REFUSED, PORTOLAN_ERR_ARGUMENT, those of portolan_send().
 */
int portolan_atomic(struct portolan_node_t *node,
                    const struct portolan_remote_t *at,
                    const struct portolan_atomic_t *what);

/**
 * Begins to change numbers as portolan_atomic(). The operands may be used again when it returns;
 * nobody may use `before` until the request has ended. Handlers may call it.
 *
 * Errors: those of portolan_atomic().
 */
int portolan_iatomic(struct portolan_node_t *node,
                     const struct portolan_remote_t *at,
                     const struct portolan_atomic_t *what,
                     portolan_request_t *request);

/**
 * Tells in `*counters` what the protocol has done so far, in this process.
 */
int portolan_counters(struct portolan_node_t *node, struct portolan_counters_t *counters);

/**
 * Calls `tell` for each reason for which something was dropped here, with its name, valid during
 * that call, and how often. Returns how many reasons there are.
 */
int portolan_drops(struct portolan_node_t *node, void (*tell)(const char *reason,
                                                              uint64_t count,
                                                              void *user), void *user);

/**
 * Tells what became of the stored model of this machine's paths: PORTOLAN_MODEL_USED and so on. A
 * sentence about it, with the file and the reason, is copied into `text`, as far as it fits, with
 * a zero behind it; with `len` 0, `text` may be null.
 */
int portolan_model(struct portolan_node_t *node, char *text, size_t len);

/**
 * Sends by `*choices` from now on, instead of by those that follow from the stored model: which
 * path a message takes, whether it asks first, and into which pieces it is cut. Limits of the
 * protocol stay limits.
 *
 * Errors: PORTOLAN_ERR_NULL, PORTOLAN_ERR_STRUCT_SIZE.
 */
int portolan_choose(struct portolan_node_t *node, const struct portolan_choices_t *choices);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PORTOLAN_H */
