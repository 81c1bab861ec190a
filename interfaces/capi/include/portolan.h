/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Portolan: fast messages between the processes of parallel programs.
 *
 * Generated from interfaces/capi by cbindgen: do not edit. Every function returns a negative
 * PORTOLAN_ERR_... on failure, and 0 or the described value on success;
 * portolan_last_error() returns the cause. See portolan(7).
 */

#ifndef PORTOLAN_H
#define PORTOLAN_H

#include <stddef.h>
#include <stdint.h>

/* Initializes a structure that the library fills. Its size identifies the version of it that
 * the program has. Example: portolan_received_t got = PORTOLAN_SIZED(portolan_received_t); */
#ifdef __cplusplus
#define PORTOLAN_SIZED(type) ([] { type made{}; made.size = sizeof made; return made; }())
#else
#define PORTOLAN_SIZED(type) ((type){.size = sizeof(type)})
#endif

/**
 * Version of the interface. It is raised when something is added. Programs that were built with a
 * lower number continue to work.
 */
#define PORTOLAN_ABI_VERSION 1

/**
 * Success.
 */
#define PORTOLAN_OK 0

/**
 * Result of portolan_test(): the operation is still pending.
 */
#define PORTOLAN_PENDING 1

/**
 * A required pointer is null.
 */
#define PORTOLAN_ERR_NULL -1

/**
 * An argument is out of range.
 */
#define PORTOLAN_ERR_ARGUMENT -2

/**
 * The size at the start of a structure is not that of any of its versions.
 */
#define PORTOLAN_ERR_STRUCT_SIZE -3

/**
 * The argument is not a node, or not a group.
 */
#define PORTOLAN_ERR_HANDLE -4

/**
 * The node was closed, or the group freed.
 */
#define PORTOLAN_ERR_CLOSED -5

/**
 * The node belongs to another thread; portolan_adopt() changes the thread.
 */
#define PORTOLAN_ERR_WRONG_THREAD -6

/**
 * This function cannot be called from a handler, or from a condition of portolan_wait_until().
 */
#define PORTOLAN_ERR_IN_HANDLER -7

/**
 * The library has a bug; the node can no longer be used.
 */
#define PORTOLAN_ERR_INTERNAL -8

/**
 * A port number is above 65535.
 */
#define PORTOLAN_ERR_PORT -9

/**
 * The launcher has ended or has another version.
 */
#define PORTOLAN_ERR_LAUNCH -10

/**
 * A link could not be opened.
 */
#define PORTOLAN_ERR_LINK -11

/**
 * The system refused a request.
 */
#define PORTOLAN_ERR_SYSTEM -12

/**
 * A setting has an invalid value, or the name of a setting is unknown.
 */
#define PORTOLAN_ERR_SETTING -13

/**
 * No option has that name.
 */
#define PORTOLAN_ERR_NO_OPTION -14

/**
 * This process was forked after its parent had joined; the node belongs to the parent.
 */
#define PORTOLAN_ERR_FORKED -15

/**
 * The rank does not exist.
 */
#define PORTOLAN_ERR_NO_SUCH_RANK -20

/**
 * The peer process has ended, or no longer answers.
 */
#define PORTOLAN_ERR_PEER_GONE -21

/**
 * No link reaches the process.
 */
#define PORTOLAN_ERR_NO_PATH -22

/**
 * The process did not answer.
 */
#define PORTOLAN_ERR_NO_ANSWER -23

/**
 * A process that may be alive may have missed messages that were sent to it.
 */
#define PORTOLAN_ERR_UNDELIVERED -24

/**
 * Every other process of the job has ended, so no message can arrive.
 */
#define PORTOLAN_ERR_NOBODY_LEFT -25

/**
 * Too many messages of this process to itself are unread.
 */
#define PORTOLAN_ERR_SELF_FULL -26

/**
 * No process that listens at the address has answered before the timeout.
 */
#define PORTOLAN_ERR_NO_SERVER -27

/**
 * The process that listens at the address has another secret, version or setting auth.
 */
#define PORTOLAN_ERR_SERVER_REFUSED -28

/**
 * The address to listen at or to connect to cannot be used.
 */
#define PORTOLAN_ERR_ADDRESS -29

/**
 * The message was longer than the buffer, which holds its first bytes.
 */
#define PORTOLAN_ERR_TRUNCATED -30

/**
 * The receiver cancelled the matching receive.
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
 * The request was completed before, or is not valid.
 */
#define PORTOLAN_ERR_STALE_REQUEST -34

/**
 * The operation was cancelled.
 */
#define PORTOLAN_ERR_CANCELLED -35

/**
 * Members of a group passed different numbers of values.
 */
#define PORTOLAN_ERR_LENGTH_MISMATCH -36

/**
 * No claim has that number.
 */
#define PORTOLAN_ERR_NO_CLAIM -37

/**
 * Members of a group called different collective operations.
 */
#define PORTOLAN_ERR_COLLECTIVE_MISMATCH -38

/**
 * The group has pending collective operations, and cannot begin a blocking one.
 */
#define PORTOLAN_ERR_GROUP_BUSY -39

/**
 * The awaited message is behind unread messages, and the memory for those is full: receive them
 * first, or raise the setting unexpected_memory.
 */
#define PORTOLAN_ERR_NO_MEMORY -42

/**
 * The memory of the operation is unmapped, or its pages forbid the access. The peer gets
 * PORTOLAN_ERR_PEER_FAULT.
 */
#define PORTOLAN_ERR_FAULT -43

/**
 * The peer cannot access the memory of its side of the operation.
 */
#define PORTOLAN_ERR_PEER_FAULT -44

/**
 * Nothing happened before the timeout. The call can be repeated; a request stays valid.
 */
#define PORTOLAN_ERR_TIMEOUT -45

/**
 * The peer refused access to its memory: no region has that key, or the place is outside the
 * region, or its access rights forbid the operation, or the memory is unmapped.
 */
#define PORTOLAN_ERR_REMOTE_REFUSED -40

/**
 * No region of this process has that key.
 */
#define PORTOLAN_ERR_NO_REGION -41

/**
 * An error without a number in this version.
 */
#define PORTOLAN_ERR_OTHER -99

/**
 * Any rank as the source.
 */
#define PORTOLAN_ANY_SOURCE 4294967295

/**
 * Flag of sends: the lane for messages that must not wait behind ordinary traffic.
 */
#define PORTOLAN_HIGH 1

/**
 * Flag of sends: no retransmission. Losses are counted at the receiver, and a message that finds
 * no buffer there is dropped. A message of several frames arrives whole or not at all. Messages of
 * more than 64 KiB, and those that fill a frame of shared memory, are sent reliably.
 */
#define PORTOLAN_BEST_EFFORT 2

/**
 * Flag of portolan_open_active(): the handler reads messages where they are, without a posted
 * buffer.
 */
#define PORTOLAN_IN_PLACE 1

/**
 * Colour of a process that portolan_group_split() puts in no group.
 */
#define PORTOLAN_NO_COLOUR 4294967295

/**
 * Operation of reductions and atomic operations: the sum; integers wrap around.
 */
#define PORTOLAN_SUM 0

/**
 * The product; integers wrap around.
 */
#define PORTOLAN_PRODUCT 1

/**
 * The minimum.
 */
#define PORTOLAN_MIN 2

/**
 * The maximum.
 */
#define PORTOLAN_MAX 3

/**
 * Bits set in both numbers. This and the next two are for integers only.
 */
#define PORTOLAN_BIT_AND 4

/**
 * Bits set in at least one number.
 */
#define PORTOLAN_BIT_OR 5

/**
 * Bits set in exactly one number.
 */
#define PORTOLAN_BIT_XOR 6

/**
 * 1 if both are not 0, else 0. This and all following ones are for atomic operations only.
 */
#define PORTOLAN_LOGICAL_AND 7

/**
 * 1 if at least one is not 0, else 0.
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
 * The unchanged number, for the returned value. Has no operands.
 */
#define PORTOLAN_READ 11

/**
 * The operand if the number equals the compared one.
 */
#define PORTOLAN_SWAP_IF_EQUAL 12

/**
 * The operand if the number differs from the compared one.
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
 * The operand's bits where the compared number has ones. Integers only.
 */
#define PORTOLAN_SWAP_MASKED 18

/**
 * int8_t
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
 * Flag of portolan_register(): other processes may get, and read by atomic operations.
 */
#define PORTOLAN_READ_ACCESS 1

/**
 * Flag of portolan_register(): other processes may put, and change numbers by atomic operations.
 */
#define PORTOLAN_WRITE_ACCESS 2

/**
 * Flag of portolan_remote_t: the target's program gets a notice when a put is in place.
 */
#define PORTOLAN_NOTIFY 4

/**
 * Kind of a peer event: the peer left the job normally, or ended its session with this process. A
 * peer of a standalone process has disconnected.
 */
#define PORTOLAN_PEER_LEFT 1

/**
 * Kind of a peer event: the peer has failed, or can no longer be reached.
 */
#define PORTOLAN_PEER_LOST 2

/**
 * Kind of a peer event: the peer has connected with this standalone process.
 */
#define PORTOLAN_PEER_JOINED 3

/**
 * Bytes of the reason in a portolan_peer_event_t, with the terminating zero.
 */
#define PORTOLAN_PEER_REASON_LEN 256

/**
 * Result of portolan_model(): no model is stored, and defaults apply.
 */
#define PORTOLAN_MODEL_ABSENT 0

/**
 * The stored model is used.
 */
#define PORTOLAN_MODEL_USED 1

/**
 * A setting turned it off, and defaults apply.
 */
#define PORTOLAN_MODEL_OFF 2

/**
 * It does not fit this machine, for the reason in the text, and defaults apply.
 */
#define PORTOLAN_MODEL_REFUSED 3

/**
 * An ordered subset of the processes of a job.
 */
typedef struct portolan_group_t portolan_group_t;

/**
 * This process, as a member of its job.
 */
typedef struct portolan_node_t portolan_node_t;

/**
 * A message for a handler; valid while the handler runs.
 */
typedef struct portolan_message_t {
  /**
   * Size of this structure, set by the library.
   */
  size_t size;
  /**
   * Bytes of the message; if it was longer than the posted buffer, its first bytes.
   */
  const void *bytes;
  /**
   * Number of bytes there.
   */
  uint64_t len;
  /**
   * Length of the message.
   */
  uint64_t message_len;
  /**
   * The posted buffer, which belongs to the program again; null for messages in place.
   */
  void *buffer;
  /**
   * Length of the posted buffer.
   */
  uint64_t buffer_len;
  /**
   * Rank of the sender.
   */
  uint32_t source;
  /**
   * Port that received the message.
   */
  uint32_t port;
} portolan_message_t;

/**
 * Runs for each message to an active port, inside calls of the library. With `node` it may call
 * functions that start an operation without waiting (portolan_isend(), portolan_isend_copy(),
 * portolan_post_recv(), the same with tags, portolan_iput(), portolan_iget(), portolan_iatomic()),
 * portolan_rank() and portolan_size(). Its sends leave after it returns. It must return: no
 * exception, no longjmp().
 */
typedef void (*portolan_handler_t)(struct portolan_node_t *node,
                                   const struct portolan_message_t *message,
                                   void *user);

/**
 * A piece of a message, with the layout of struct iovec.
 */
typedef struct portolan_piece_t {
  /**
   * First byte; may be null when the length is 0.
   */
  const void *bytes;
  /**
   * Number of bytes.
   */
  size_t len;
} portolan_piece_t;

/**
 * A received message.
 */
typedef struct portolan_received_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Length of the message.
   */
  uint64_t len;
  /**
   * Rank of the sender.
   */
  uint32_t source;
} portolan_received_t;

/**
 * A non-blocking operation, to be waited for or tested. 0 is no operation.
 */
typedef uint64_t portolan_request_t;

/**
 * Result of a non-blocking operation.
 */
typedef struct portolan_completion_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Length of the message.
   */
  uint64_t len;
  /**
   * Buffer of the operation; null if it has no bytes.
   */
  void *buffer;
  /**
   * Rank of the sender; for a send, of the receiver.
   */
  uint32_t source;
  /**
   * 1 if the message was tagged and has immediate data, else 0.
   */
  uint32_t has_imm;
  /**
   * Tag of a received tagged message; else 0.
   */
  uint64_t tag;
  /**
   * Immediate data of the message; 0 if it has none.
   */
  uint64_t imm;
} portolan_completion_t;

/**
 * Properties of a tagged message.
 */
typedef struct portolan_envelope_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Length of the message.
   */
  uint64_t len;
  /**
   * Tag of the message.
   */
  uint64_t tag;
  /**
   * Immediate data of the message; 0 if it has none.
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
 * A message that is removed from matching. 0 is no claim.
 */
typedef uint64_t portolan_claim_t;

/**
 * A reply to a call.
 */
typedef struct portolan_reply_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Length of the reply.
   */
  uint64_t len;
  /**
   * Status that the server has chosen; 0 is success by convention.
   */
  uint32_t status;
} portolan_reply_t;

/**
 * A request that a server has received.
 */
typedef struct portolan_call_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Number of the call, for its reply.
   */
  uint64_t number;
  /**
   * Bytes of the request, allocated by malloc().
   */
  void *memory;
  /**
   * Number of bytes.
   */
  uint64_t len;
  /**
   * Rank of the caller.
   */
  uint32_t source;
} portolan_call_t;

/**
 * Releases memory of a reply that has been sent.
 */
typedef void (*portolan_release_t)(void *memory, void *user);

/**
 * A peer of a standalone process.
 */
typedef struct portolan_peer_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Rank by which this process addresses the peer. Another peer gets it at the earliest one
   * second after this one has ended, and not before the program has taken the event of the end.
   */
  uint32_t rank;
  /**
   * Number of peers that had the rank before.
   */
  uint32_t generation;
} portolan_peer_t;

/**
 * Event of a peer.
 */
typedef struct portolan_peer_event_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Rank of the peer.
   */
  uint32_t rank;
  /**
   * PORTOLAN_PEER_JOINED, PORTOLAN_PEER_LEFT or PORTOLAN_PEER_LOST.
   */
  uint32_t kind;
  /**
   * Number of peers of a standalone process that had the rank before; 0 in a job.
   */
  uint32_t generation;
  /**
   * Reason as a UTF-8 string, truncated if it is too long.
   */
  char reason[PORTOLAN_PEER_REASON_LEN];
} portolan_peer_event_t;

/**
 * Combines `count` elements of lower members with those of upper members, which it replaces by the
 * results. `user` is the argument that was passed with the function.
 */
typedef void (*portolan_combine_t)(const void *lower, void *upper, size_t count, void *user);

/**
 * A place in the memory of another process, and the service to reach it with.
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
   * Offset from the start of the region, in bytes.
   */
  uint64_t offset;
  /**
   * Word for the notice, with PORTOLAN_NOTIFY.
   */
  uint64_t notice;
  /**
   * Rank of the process.
   */
  uint32_t rank;
  /**
   * 0, or PORTOLAN_HIGH, PORTOLAN_NOTIFY, or both.
   */
  uint32_t flags;
} portolan_remote_t;

/**
 * Notice of a put into a region of this process.
 */
typedef struct portolan_notice_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Word of the process that put.
   */
  uint64_t word;
  /**
   * Key of the region.
   */
  uint64_t key;
  /**
   * Offset of the first byte.
   */
  uint64_t offset;
  /**
   * Length of the put.
   */
  uint64_t len;
  /**
   * Rank of the process that put.
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
   * PORTOLAN_SUM or another operation.
   */
  int operation;
  /**
   * PORTOLAN_DOUBLE or another type.
   */
  int type;
  /**
   * Numbers at the target, and in each of these arrays.
   */
  size_t count;
  /**
   * One operand for each number; not used by PORTOLAN_READ.
   */
  const void *operands;
  /**
   * Numbers to compare with; used only by operations that compare.
   */
  const void *compare;
  /**
   * Receives the previous values; null if they are not needed.
   */
  void *before;
} portolan_atomic_t;

/**
 * Counters of the protocol in this process.
 */
typedef struct portolan_counters_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Frames passed to a link, including retransmitted ones.
   */
  uint64_t frames_sent;
  /**
   * Accepted frames.
   */
  uint64_t frames_received;
  /**
   * Retransmitted frames.
   */
  uint64_t retransmits;
  /**
   * Retransmission timeouts.
   */
  uint64_t timeouts;
  /**
   * Paths that were abandoned because they were silent and another answered.
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
   * Messages that were held because they arrived early or found no buffer.
   */
  uint64_t messages_held;
  /**
   * Best-effort messages that did not arrive.
   */
  uint64_t best_effort_lost;
  /**
   * Bulk frames that were received directly into their place.
   */
  uint64_t placement_hits;
  /**
   * Frames that were received where another one was expected.
   */
  uint64_t placement_misses;
  /**
   * Bytes that were copied to correct this.
   */
  uint64_t placement_repaired_bytes;
  /**
   * Frames that a link could not take at once.
   */
  uint64_t link_full;
  /**
   * All drops; portolan_drops() counts them by reason.
   */
  uint64_t drops;
  /**
   * Requests for memory of this process that were handled.
   */
  uint64_t remote_requests;
  /**
   * Accepted frames with a congestion mark of the network.
   */
  uint64_t frames_marked;
  /**
   * Sent frames that peers reported as marked.
   */
  uint64_t marks_heard;
  /**
   * Bytes of transfers that arrived on streams.
   */
  uint64_t stream_bytes;
} portolan_counters_t;

/**
 * Pieces of messages up to a length, when no other message is pending.
 */
typedef struct portolan_lone_pieces_t {
  /**
   * Longest message that this applies to.
   */
  uint64_t message_len_max;
  /**
   * Bytes per call; 0 for whole messages.
   */
  size_t call_len;
} portolan_lone_pieces_t;

/**
 * Path and form in which messages leave.
 */
typedef struct portolan_choices_t {
  /**
   * Size of this structure, set by the program.
   */
  size_t size;
  /**
   * Longest message on a network that is sent without announcement; 0 for the protocol's limit.
   */
  size_t eager_len_max;
  /**
   * The same on shared memory.
   */
  size_t eager_len_max_shm;
  /**
   * Longest message of several frames that uses raw Ethernet rather than UDP.
   */
  size_t packet_len_max;
  /**
   * Pieces of lone messages, by ascending length; entries after the sixth are not used.
   */
  const struct portolan_lone_pieces_t *lone;
  /**
   * Number of entries there.
   */
  size_t lone_count;
} portolan_choices_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the name of a result, such as "PORTOLAN_ERR_NULL"; never null.
 */
const char *portolan_error_name(int code);

/**
 * Returns the general meaning of a result; never null. portolan_last_error() returns the cause.
 */
const char *portolan_strerror(int code);

/**
 * Returns the version of the library, such as "0.1.0"; never null.
 */
const char *portolan_version(void);

/**
 * Returns PORTOLAN_ABI_VERSION of the loaded library.
 */
uint32_t portolan_abi_version(void);

/**
 * Returns the cause of the last failure of a library function on this thread: one sentence that
 * names the subject and the cause. Valid until the next failure on this thread; empty before the
 * first; never null.
 */
const char *portolan_last_error(void);

/**
 * Joins the job that this process was started in; without a launcher, a job of one. The node
 * belongs to the calling thread. On failure, `*node` becomes null.
 *
 * Errors: PORTOLAN_ERR_LAUNCH, PORTOLAN_ERR_LINK, PORTOLAN_ERR_SETTING, PORTOLAN_ERR_SYSTEM.
 */
int portolan_join(struct portolan_node_t **node);

/**
 * Leaves the job after all sent messages have arrived, however long live receivers take. Pending
 * sends get one second to complete. Other pending operations are cancelled. The memory of all
 * operations belongs to the program again.
 *
 * Errors: PORTOLAN_ERR_UNDELIVERED when a process that may be alive may have missed messages;
 * PORTOLAN_ERR_CLOSED when the node was closed before.
 */
int portolan_close(struct portolan_node_t *node);

/**
 * Gives the node to the calling thread. Its previous thread must not be in a function of the
 * library, and must no longer call one with this node.
 *
 * Errors: PORTOLAN_ERR_CLOSED; PORTOLAN_ERR_WRONG_THREAD while the other thread is in a function.
 */
int portolan_adopt(struct portolan_node_t *node);

/**
 * Returns the rank of this process, from 0. Handlers may call it.
 */
int portolan_rank(const struct portolan_node_t *node);

/**
 * Returns the number of processes in the job. Handlers may call it.
 */
int portolan_size(const struct portolan_node_t *node);

/**
 * Writes the 16 bytes of the job's random number to `id`. All processes of a job have the same
 * number, and jobs have different ones.
 */
int portolan_job_id(struct portolan_node_t *node, uint8_t *id);

/**
 * Copies the value of the program's own option `name`, which was given with `portolan run --option
 * app.NAME=VALUE`, to `value`, cut to fit, with a terminating zero. Returns its length without the
 * zero.
 *
 * Errors: PORTOLAN_ERR_NO_OPTION.
 */
int portolan_option(struct portolan_node_t *node, const char *name, char *value, size_t value_len);

/**
 * Ends the whole job with exit status `status`, because of `reason`. This process should end too.
 */
int portolan_abort(struct portolan_node_t *node, int status, const char *reason);

/**
 * Calls `tell` with a description of each path to process `rank` that was tried so far: the link,
 * its state and its round-trip time. The text is valid during that call. Returns the number of
 * paths.
 */
int portolan_paths(struct portolan_node_t *node,
                   uint32_t rank,
                   void (*tell)(const char *path, void *user),
                   void *user);

/**
 * Opens a port for portolan_recv() and portolan_post_recv(). Messages that arrived earlier are
 * held for it.
 *
 * Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE.
 */
int portolan_open(struct portolan_node_t *node, uint32_t port);

/**
 * Opens a port as an active port: `handler` runs for each message, with `user` as its last
 * argument. With PORTOLAN_IN_PLACE in `flags` it reads messages where they are. Otherwise each
 * message goes to a posted buffer, which the handler receives.
 *
 * Errors: PORTOLAN_ERR_PORT, PORTOLAN_ERR_PORT_IN_USE, PORTOLAN_ERR_ARGUMENT for unknown flags.
 */
int portolan_open_active(struct portolan_node_t *node,
                         uint32_t port,
                         uint32_t flags,
                         portolan_handler_t handler,
                         void *user);

/**
 * Sends `len` bytes to `port` of process `rank`. The bytes may be reused when it returns. Short
 * messages are then copied, and have left or leave within microseconds; long ones have arrived.
 * `flags`: 0, or PORTOLAN_HIGH, PORTOLAN_BEST_EFFORT, or both. A message may be empty.
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
 * Waits at most `timeout_ns` nanoseconds until the receiver accepts `len` bytes of any length. They
 * are copied, and sent as if by portolan_isend_copy(). A receiver accepts nothing while it has 512
 * KiB of unread messages of this process and lane, or has not yet answered. `flags`: as for
 * portolan_send().
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and the message is not sent; those of portolan_send().
 */
int portolan_send_for(struct portolan_node_t *node,
                      uint32_t rank,
                      uint32_t port,
                      const void *buffer,
                      size_t len,
                      uint32_t flags,
                      uint64_t timeout_ns);

/**
 * Sends `count` pieces as one message, like portolan_send().
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
 * PORTOLAN_ANY_SOURCE, and stores its properties in `*received`, which may be null.
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
 * Waits like portolan_recv(), at most `timeout_ns` nanoseconds. A long message that has begun to
 * arrive is received completely, even after that time.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and no message is lost; those of portolan_recv().
 */
int portolan_recv_for(struct portolan_node_t *node,
                      uint32_t port,
                      uint32_t source,
                      void *buffer,
                      size_t len,
                      uint64_t timeout_ns,
                      struct portolan_received_t *received);

/**
 * Starts a nonblocking send. The `len` bytes must not change until the operation has ended. Pass
 * `*request` to portolan_wait() or portolan_test(). Short messages of a burst share frames, which
 * are sent by the next call that waits or makes progress. Handlers may call it.
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
 * Starts a nonblocking send of a copy of `len` bytes, without a request to wait for. The message
 * is sent as by portolan_isend(). Handlers may call it.
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
 * PORTOLAN_ANY_SOURCE. The buffer must not be used until the operation has ended. At a port with a
 * handler, the handler receives it: there is nothing to wait for, and `request` may be null. At
 * other ports it must not be null. Handlers may call it, with PORTOLAN_ANY_SOURCE.
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
 * Waits until an operation has ended, and stores its result in `*completion`, which may be null.
 *
 * After a failure of the operation `*completion` has its buffer, the length and tag of a message
 * that did not fit, and the source, which is PORTOLAN_ANY_SOURCE if it is unknown.
 *
 * Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_NOBODY_LEFT, PORTOLAN_ERR_REFUSED,
 * PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_STALE_REQUEST when it was completed before, or its port has
 * a handler.
 */
int portolan_wait(struct portolan_node_t *node,
                  portolan_request_t request,
                  struct portolan_completion_t *completion);

/**
 * Waits like portolan_wait(), at most `timeout_ns` nanoseconds.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and the request stays valid; those of portolan_wait().
 */
int portolan_wait_for(struct portolan_node_t *node,
                      portolan_request_t request,
                      uint64_t timeout_ns,
                      struct portolan_completion_t *completion);

/**
 * Waits until all of `count` operations have ended; requests of 0 count as ended. Each request is
 * set to 0. Returns the first failure, if there is one, after all have ended.
 *
 * Errors: those of portolan_wait().
 */
int portolan_wait_all(struct portolan_node_t *node, portolan_request_t *requests, size_t count);

/**
 * Waits until one of `count` operations has ended: sends, receives, operations on remote memory and
 * collective operations alike. Requests of 0 are ignored. Stores the index of the ended one in
 * `*index`, sets its request to 0, and returns its result like portolan_wait(). If all are 0,
 * returns 0 with SIZE_MAX in `*index`.
 *
 * Errors: those of portolan_wait().
 */
int portolan_wait_any(struct portolan_node_t *node,
                      portolan_request_t *requests,
                      size_t count,
                      size_t *index,
                      struct portolan_completion_t *completion);

/**
 * Waits like portolan_wait_any(), at most `timeout_ns` nanoseconds.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and all requests stay valid; those of portolan_wait().
 */
int portolan_wait_any_for(struct portolan_node_t *node,
                          portolan_request_t *requests,
                          size_t count,
                          uint64_t timeout_ns,
                          size_t *index,
                          struct portolan_completion_t *completion);

/**
 * Makes progress once. Returns like portolan_wait_any() if one of `count` operations has ended, and
 * PORTOLAN_PENDING if none has.
 *
 * Errors: those of portolan_wait().
 */
int portolan_test_any(struct portolan_node_t *node,
                      portolan_request_t *requests,
                      size_t count,
                      size_t *index,
                      struct portolan_completion_t *completion);

/**
 * Waits until at least one of `count` operations has ended; requests of 0 are ignored. Returns the
 * number of those that have ended, 0 if all are 0. For each, stores its index in `indices`, its
 * result (0 or a negative number) in `results`, and its completion in `completions`, in this order,
 * and sets its request to 0. The arrays have `count` elements. `results` and `completions` may be
 * null; each completion has its size set.
 *
 * Errors: PORTOLAN_ERR_NULL, PORTOLAN_ERR_STRUCT_SIZE.
 */
int portolan_wait_some(struct portolan_node_t *node,
                       portolan_request_t *requests,
                       size_t count,
                       size_t *indices,
                       int *results,
                       struct portolan_completion_t *completions);

/**
 * Makes progress once. Returns 0 when the operation has ended, like portolan_wait(), and
 * PORTOLAN_PENDING before.
 *
 * Errors: those of portolan_wait().
 */
int portolan_test(struct portolan_node_t *node,
                  portolan_request_t request,
                  struct portolan_completion_t *completion);

/**
 * Receives and sends frames that are ready, runs handlers, and returns at once with the number of
 * frames moved.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when all other processes of the job have ended and this process
 * has received all their messages: no further message can arrive.
 */
int portolan_progress(struct portolan_node_t *node);

/**
 * Sends all pending frames.
 */
int portolan_flush(struct portolan_node_t *node);

/**
 * Sends `len` bytes to process `rank` like portolan_send(). The receiver matches the message by
 * `tag` instead of by port. If `imm` is not null, the receiver also gets that word. `flags`: 0 or
 * PORTOLAN_HIGH. Messages to one rank and lane, whether tagged or sent to ports, are matched in
 * sending order.
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
 * Starts a nonblocking portolan_send_tagged(); see portolan_isend(). Handlers may call it.
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
 * Starts a nonblocking send of a tagged copy; see portolan_isend_copy(). Handlers may call it.
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
 * Posts a buffer for the first message that matches no earlier receive and has `tag`, except for
 * the bits in `ignore`, from process `source`, or from any with PORTOLAN_ANY_SOURCE. See
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
 * Waits for the first message that portolan_post_recv_tagged() would match, and stores its
 * properties in `*envelope`, which may be null.
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
 * Waits like portolan_recv_tagged(), at most `timeout_ns` nanoseconds. A long message that has begun
 * to arrive is received completely, even after that time.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and no message is lost; those of portolan_recv_tagged().
 */
int portolan_recv_tagged_for(struct portolan_node_t *node,
                             uint64_t tag,
                             uint64_t ignore,
                             uint32_t source,
                             void *buffer,
                             size_t len,
                             uint64_t timeout_ns,
                             struct portolan_envelope_t *envelope);

/**
 * Makes progress once. Returns 1 if an unexpected message matches, and stores its properties in
 * `*envelope`; the message stays available to receives. Returns 0 if there is none.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK, PORTOLAN_ERR_NO_MEMORY; when there is none and none can
 * arrive, PORTOLAN_ERR_PEER_GONE with a `source`, PORTOLAN_ERR_NOBODY_LEFT without.
 */
int portolan_peek(struct portolan_node_t *node,
                  uint64_t tag,
                  uint64_t ignore,
                  uint32_t source,
                  struct portolan_envelope_t *envelope);

/**
 * Like portolan_peek(), but removes the message from matching with other receives, for
 * portolan_recv_claimed(). A claimed message keeps its memory until it is received.
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
 * Posts a buffer for a claimed message. A buffer without bytes discards the message: the request
 * then completes with PORTOLAN_ERR_TRUNCATED, unless the message is empty too.
 *
 * Errors: PORTOLAN_ERR_NO_CLAIM when it was received before, or is not valid.
 */
int portolan_recv_claimed(struct portolan_node_t *node,
                          portolan_claim_t claim,
                          void *buffer,
                          size_t len,
                          portolan_request_t *request);

/**
 * Cancels a posted receive, tagged or at a port without a handler. Returns 1, and the receive
 * completes with PORTOLAN_ERR_CANCELLED. Returns 0 for a send, or when a message has matched the
 * receive, which then completes normally. The request must be waited for in both cases.
 */
int portolan_cancel(struct portolan_node_t *node, portolan_request_t request);

/**
 * Waits until a message from process `source`, or from any with PORTOLAN_ANY_SOURCE, waits at
 * `port`, and stores its properties in `*received`. The message stays available: a receive from
 * that sender gets it.
 *
 * Errors: those of portolan_recv(), except for PORTOLAN_ERR_TRUNCATED.
 */
int portolan_probe(struct portolan_node_t *node,
                   uint32_t port,
                   uint32_t source,
                   struct portolan_received_t *received);

/**
 * Waits like portolan_probe(), at most `timeout_ns` nanoseconds; with 0 it does not wait.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_probe().
 */
int portolan_probe_for(struct portolan_node_t *node,
                       uint32_t port,
                       uint32_t source,
                       uint64_t timeout_ns,
                       struct portolan_received_t *received);

/**
 * Waits until a message waits that portolan_recv_tagged() would receive, and stores its properties
 * in `*envelope`. The message stays available. portolan_peek() does not wait.
 *
 * Errors: those of portolan_peek().
 */
int portolan_probe_tagged(struct portolan_node_t *node,
                          uint64_t tag,
                          uint64_t ignore,
                          uint32_t source,
                          struct portolan_envelope_t *envelope);

/**
 * Waits like portolan_probe_tagged(), at most `timeout_ns` nanoseconds.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_probe_tagged().
 */
int portolan_probe_tagged_for(struct portolan_node_t *node,
                              uint64_t tag,
                              uint64_t ignore,
                              uint32_t source,
                              uint64_t timeout_ns,
                              struct portolan_envelope_t *envelope);

/**
 * Waits for the next message to `port` like portolan_recv(), of any length, and stores its address
 * in `*buffer`. The memory is allocated by malloc(); release it with free(). On failure `*buffer`
 * becomes null.
 *
 * Errors: those of portolan_recv(), except for PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_SYSTEM when no
 * memory is left, and the message is still available.
 */
int portolan_recv_alloc(struct portolan_node_t *node,
                        uint32_t port,
                        uint32_t source,
                        void **buffer,
                        struct portolan_received_t *received);

/**
 * Waits for a tagged message like portolan_recv_tagged(), of any length, and stores its address in
 * `*buffer`; see portolan_recv_alloc().
 *
 * Errors: those of portolan_recv_tagged(), except for PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_SYSTEM
 * when no memory is left, and the message is still available.
 */
int portolan_recv_tagged_alloc(struct portolan_node_t *node,
                               uint64_t tag,
                               uint64_t ignore,
                               uint32_t source,
                               void **buffer,
                               struct portolan_envelope_t *envelope);

/**
 * Calls a server: sends `len` bytes as a request to `port` of process `rank`, and waits at most
 * `timeout_ns` nanoseconds for the reply, which has any length. UINT64_MAX is no limit. Stores the
 * address of the reply in `*bytes`, and its length and status in `*reply`. The memory is allocated
 * by malloc(); release it with free(). On failure `*bytes` becomes null.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, and a later reply is dropped; PORTOLAN_ERR_PEER_GONE when the server
 * has ended; PORTOLAN_ERR_SYSTEM when no memory is left; those of portolan_send().
 */
int portolan_call(struct portolan_node_t *node,
                  uint32_t rank,
                  uint32_t port,
                  const void *request,
                  size_t len,
                  uint64_t timeout_ns,
                  void **bytes,
                  struct portolan_reply_t *reply);

/**
 * Waits at most `timeout_ns` nanoseconds for the next request of portolan_call() to `port`, which was
 * opened with portolan_open(), and describes it in `*call`. UINT64_MAX is no limit. Its memory
 * `call->memory` is allocated by malloc(); release it with free(). Answer with portolan_reply().
 *
 * Errors: PORTOLAN_ERR_TIMEOUT; PORTOLAN_ERR_SYSTEM when no memory is left; those of
 * portolan_recv().
 */
int portolan_recv_call(struct portolan_node_t *node,
                       uint32_t port,
                       uint64_t timeout_ns,
                       struct portolan_call_t *call);

/**
 * Answers the call `number` of process `source` with a copy of `len` bytes and a status from 0 to
 * 65535; 0 is success by convention. A server may answer calls in any order. Handlers may call it.
 *
 * Errors: PORTOLAN_ERR_ARGUMENT; those of portolan_send().
 */
int portolan_reply(struct portolan_node_t *node,
                   uint32_t source,
                   uint64_t number,
                   uint32_t status,
                   const void *bytes,
                   size_t len);

/**
 * Answers a call like portolan_reply(), without a copy of long replies. The bytes must not change
 * until the library calls `release` with `bytes` and `user`, once, even if this fails. It does so
 * inside calls, or on a thread of its own.
 *
 * Errors: PORTOLAN_ERR_ARGUMENT; those of portolan_send().
 */
int portolan_reply_release(struct portolan_node_t *node,
                           uint32_t source,
                           uint64_t number,
                           uint32_t status,
                           void *bytes,
                           size_t len,
                           portolan_release_t release,
                           void *user);

/**
 * Creates a process without a launcher, which finds its peers with portolan_listen() and
 * portolan_connect(). It is rank 0 of a job of its own, and each peer gets another rank. The node
 * belongs to the calling thread. On failure, `*node` becomes null.
 *
 * Errors: PORTOLAN_ERR_LINK, PORTOLAN_ERR_SETTING, PORTOLAN_ERR_SYSTEM.
 */
int portolan_standalone(struct portolan_node_t **node);

/**
 * Listens for peers at `address`, "HOST:PORT", from now on. Returns the port, which the system
 * chooses if PORT is 0. Peers can connect while the program computes. They must have the same
 * secret, `secret_len` bytes that never leave this process and should be random. The function may
 * be called several times.
 *
 * Errors: PORTOLAN_ERR_ADDRESS; PORTOLAN_ERR_SETTING without a secret; PORTOLAN_ERR_ARGUMENT in a
 * job.
 */
int portolan_listen(struct portolan_node_t *node,
                    const char *address,
                    const void *secret,
                    size_t secret_len);

/**
 * Connects to the process that listens at `address`, "HOST:PORT", with the same secret. Waits at
 * most `timeout_ns` nanoseconds until there is one, so either side may start first. Describes the
 * peer in `*peer`; `peer->rank` is its rank for all other functions. If the processes are
 * connected already, that is the present peer.
 *
 * Errors: PORTOLAN_ERR_NO_SERVER after the timeout; PORTOLAN_ERR_SERVER_REFUSED at once if the
 * secrets or settings differ; PORTOLAN_ERR_ADDRESS; PORTOLAN_ERR_SETTING without a secret;
 * PORTOLAN_ERR_ARGUMENT in a job.
 */
int portolan_connect(struct portolan_node_t *node,
                     const char *address,
                     const void *secret,
                     size_t secret_len,
                     uint64_t timeout_ns,
                     struct portolan_peer_t *peer);

/**
 * Disconnects from the peer with this rank and generation, after everything that was sent to it
 * has arrived. Has no effect if it has ended.
 *
 * Errors: PORTOLAN_ERR_ARGUMENT in a job.
 */
int portolan_disconnect(struct portolan_node_t *node, uint32_t rank, uint32_t generation);

/**
 * Makes progress, and sleeps in between, until `done` returns a value other than 0. It is called
 * after each turn, so its result must depend on state that handlers change.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when `done` still returns 0 and no further handler can run,
 * because all other processes of the job have ended.
 */
int portolan_wait_until(struct portolan_node_t *node, int (*done)(void *user), void *user);

/**
 * Waits like portolan_wait_until(), at most `timeout_ns` nanoseconds.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT; those of portolan_wait_until().
 */
int portolan_wait_until_for(struct portolan_node_t *node,
                            int (*done)(void *user),
                            void *user,
                            uint64_t timeout_ns);

/**
 * Returns the descriptor for a program's own event loop, which waits until it is readable. Call
 * portolan_arm() before each wait and portolan_disarm() after it. Never read or close it.
 */
int portolan_event_fd(struct portolan_node_t *node);

/**
 * Makes portolan_event_fd() readable as soon as there is work. Returns 1, or 0 if there is work
 * already: then do not wait, but call portolan_progress() and test the requests.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when the descriptor would stay silent, because all other
 * processes of the job have ended.
 */
int portolan_arm(struct portolan_node_t *node);

/**
 * Reverts portolan_arm(), and handles what is due.
 */
int portolan_disarm(struct portolan_node_t *node);

/**
 * Takes the next event of a peer without waiting. Returns 1 and fills `*event`, or 0 if there is
 * none. In programs that have called this before, portolan_event_fd() becomes readable when there
 * may be an event.
 *
 * Each loss is reported once, even if no operation needed the peer. Losses are the end of a
 * process of the job that `portolan run` has started, and a peer that this process waited for but
 * could no longer reach. A peer that returns and is lost again is reported again. A standalone
 * process gets an event when a peer connects, and one when it ends.
 */
int portolan_next_peer_event(struct portolan_node_t *node, struct portolan_peer_event_t *event);

/**
 * Makes a group of `count` processes with the number `id`, from 1 to 16383. All members, and no
 * other group, must use this number, and name the same ranks in the same order.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK; PORTOLAN_ERR_SETTING when this process is not among them, a
 * rank occurs twice, or the number is out of range.
 */
int portolan_group_new(struct portolan_node_t *node,
                       uint32_t id,
                       const uint32_t *ranks,
                       size_t count,
                       struct portolan_group_t **group);

/**
 * Splits a group, or all processes of the job if it is null. Members that pass the same `colour`
 * form a new group, ordered by `key`, and for equal keys as in the old group. A member that passes
 * PORTOLAN_NO_COLOUR takes part and gets null. All members must call it, as any collective
 * operation. The library chooses the numbers of the new groups; a process can do this 16,383
 * times.
 *
 * Errors: those of portolan_allreduce(); PORTOLAN_ERR_SETTING when no number is left.
 */
int portolan_group_split(struct portolan_node_t *node,
                         const struct portolan_group_t *group,
                         uint32_t colour,
                         uint32_t key,
                         struct portolan_group_t **new_group);

/**
 * Frees a group. Null has no effect.
 *
 * Errors: PORTOLAN_ERR_CLOSED when it was freed before.
 */
int portolan_group_free(struct portolan_group_t *group);

/**
 * Returns this process's index in the group, from 0.
 */
int portolan_group_rank(const struct portolan_group_t *group);

/**
 * Returns the number of members of the group.
 */
int portolan_group_size(const struct portolan_group_t *group);

/**
 * Waits until every member of the group, or with null every process of the job, has called it. All
 * members make the same calls on a group in the same order. If they do not, or a member dies,
 * every member's call fails with a message that names the member and the cause, and so does every
 * later call on that group.
 *
 * Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_COLLECTIVE_MISMATCH, PORTOLAN_ERR_LENGTH_MISMATCH,
 * PORTOLAN_ERR_GROUP_BUSY.
 */
int portolan_barrier(struct portolan_node_t *node, const struct portolan_group_t *group);

/**
 * Copies `len` bytes of member `root` to those of all other members of the group, or with null of
 * the job. All must pass the same length. The root does not wait for all; a later call may report
 * a failure. From 4 MiB on, more than two members form a chain, in which each passes on blocks
 * while it receives further ones.
 *
 * A broadcast of 2 KiB or more to 3 to 64 processes on three or more hosts of one IPv4 network
 * uses UDP multicast if it reaches all hosts: the root sends the bytes once, and waits until all
 * members have them. PORTOLAN_MULTICAST in the environment sets another length, which must be at
 * least 1K (1024), or turns multicast `off`.
 *
 * Errors: PORTOLAN_ERR_NO_SUCH_RANK, those of portolan_barrier().
 */
int portolan_broadcast(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       uint32_t root,
                       void *buffer,
                       size_t len);

/**
 * Combines `count` values of each member of the group, or with null of the job, element by
 * element. Every member gets the same result, bit for bit, in place. `operation` is PORTOLAN_SUM
 * or another constant of its group, and `type` PORTOLAN_DOUBLE or another; all members must pass
 * the same.
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
 * Combines values like portolan_allreduce(), for member `root` only. At all other members they are
 * partial results afterwards.
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
 * member has begun it; pass `*request` to portolan_wait() or a similar function. Every call that
 * waits or makes progress advances it. All members begin the operations of a group in the same
 * order. Two of them are in flight; later non-blocking ones are queued.
 *
 * Errors: those of portolan_barrier().
 */
int portolan_ibarrier(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      portolan_request_t *request);

/**
 * Begins a broadcast like portolan_broadcast(), and returns at once; see portolan_ibarrier().
 * Until it has ended, the bytes must not change at the root, and must not be used elsewhere.
 *
 * Errors: those of portolan_broadcast().
 */
int portolan_ibroadcast(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        uint32_t root,
                        void *buffer,
                        size_t len,
                        portolan_request_t *request);

/**
 * Begins a reduction like portolan_allreduce(), and returns at once; see portolan_ibarrier(). Until
 * it has ended, the values must not be used.
 *
 * Errors: those of portolan_allreduce().
 */
int portolan_iallreduce(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        int operation,
                        int type,
                        void *values,
                        size_t count,
                        portolan_request_t *request);

/**
 * Begins a reduction like portolan_reduce(), and returns at once; see portolan_iallreduce().
 *
 * Errors: those of portolan_reduce().
 */
int portolan_ireduce(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     uint32_t root,
                     int operation,
                     int type,
                     void *values,
                     size_t count,
                     portolan_request_t *request);

/**
 * Collects the `len` bytes at `mine` of all members of the group, or with null of the job, in `all`
 * of every member, in the order of the group. All pass the same length.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_allgather(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       const void *mine,
                       size_t len,
                       void *all);

/**
 * Begins portolan_allgather(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_allgather().
 */
int portolan_iallgather(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        const void *mine,
                        size_t len,
                        void *all,
                        portolan_request_t *request);

/**
 * Collects blocks like portolan_allgather(). `lens` has the length of each member's block in bytes.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_allgatherv(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        const void *mine,
                        void *all,
                        const size_t *lens);

/**
 * Begins portolan_allgatherv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_allgatherv().
 */
int portolan_iallgatherv(struct portolan_node_t *node,
                         const struct portolan_group_t *group,
                         const void *mine,
                         void *all,
                         const size_t *lens,
                         portolan_request_t *request);

/**
 * Collects the `len` bytes at `mine` of all members in `all` of member `root`; the others may pass
 * null. All pass the same length.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_gather(struct portolan_node_t *node,
                    const struct portolan_group_t *group,
                    uint32_t root,
                    const void *mine,
                    size_t len,
                    void *all);

/**
 * Begins portolan_gather(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_gather().
 */
int portolan_igather(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     uint32_t root,
                     const void *mine,
                     size_t len,
                     void *all,
                     portolan_request_t *request);

/**
 * Collects blocks like portolan_gather(). Member `root` alone passes `all` and `lens`, the length of
 * each member's block in bytes.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_gatherv(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     uint32_t root,
                     const void *mine,
                     size_t len,
                     void *all,
                     const size_t *lens);

/**
 * Begins portolan_gatherv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_gatherv().
 */
int portolan_igatherv(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      uint32_t root,
                      const void *mine,
                      size_t len,
                      void *all,
                      const size_t *lens,
                      portolan_request_t *request);

/**
 * Distributes the blocks at `all` of member `root`, of `len` bytes each, to `mine` of the members;
 * the others may pass null as `all`. All pass the same length.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_scatter(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     uint32_t root,
                     const void *all,
                     void *mine,
                     size_t len);

/**
 * Begins portolan_scatter(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_scatter().
 */
int portolan_iscatter(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      uint32_t root,
                      const void *all,
                      void *mine,
                      size_t len,
                      portolan_request_t *request);

/**
 * Distributes blocks like portolan_scatter(). Member `root` alone passes `all` and `lens`, the length
 * of each member's block in bytes; every member passes its own as `len`.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_scatterv(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      uint32_t root,
                      const void *all,
                      const size_t *lens,
                      void *mine,
                      size_t len);

/**
 * Begins portolan_scatterv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_scatterv().
 */
int portolan_iscatterv(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       uint32_t root,
                       const void *all,
                       const size_t *lens,
                       void *mine,
                       size_t len,
                       portolan_request_t *request);

/**
 * Sends each member its block of `len` bytes at `mine`, and receives the blocks of all members for
 * this one at `theirs`. All pass the same length.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_alltoall(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      const void *mine,
                      void *theirs,
                      size_t len);

/**
 * Begins portolan_alltoall(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_alltoall().
 */
int portolan_ialltoall(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       const void *mine,
                       void *theirs,
                       size_t len,
                       portolan_request_t *request);

/**
 * Exchanges blocks like portolan_alltoall(). `lens` has the length in bytes of the block for each
 * member, and `their_lens` that of the block from each member.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_alltoallv(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       const void *mine,
                       const size_t *lens,
                       void *theirs,
                       const size_t *their_lens);

/**
 * Begins portolan_alltoallv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_alltoallv().
 */
int portolan_ialltoallv(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        const void *mine,
                        const size_t *lens,
                        void *theirs,
                        const size_t *their_lens,
                        portolan_request_t *request);

/**
 * Combines the values of all members like portolan_allreduce(), and stores an equal part of the
 * result, `count` values, in `own` of each member. The values at `values` are not changed.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_reduce_scatter(struct portolan_node_t *node,
                            const struct portolan_group_t *group,
                            int operation,
                            int type,
                            const void *values,
                            void *own,
                            size_t count);

/**
 * Begins portolan_reduce_scatter(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_reduce_scatter().
 */
int portolan_ireduce_scatter(struct portolan_node_t *node,
                             const struct portolan_group_t *group,
                             int operation,
                             int type,
                             const void *values,
                             void *own,
                             size_t count,
                             portolan_request_t *request);

/**
 * Combines values like portolan_reduce_scatter(), and gives each member as many as `counts` has for
 * it. All pass the same counts.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_reduce_scatterv(struct portolan_node_t *node,
                             const struct portolan_group_t *group,
                             int operation,
                             int type,
                             const void *values,
                             void *own,
                             const size_t *counts);

/**
 * Begins portolan_reduce_scatterv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_reduce_scatterv().
 */
int portolan_ireduce_scatterv(struct portolan_node_t *node,
                              const struct portolan_group_t *group,
                              int operation,
                              int type,
                              const void *values,
                              void *own,
                              const size_t *counts,
                              portolan_request_t *request);

/**
 * Combines `count` values of this member and of all before it, element by element, in place.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_scan(struct portolan_node_t *node,
                  const struct portolan_group_t *group,
                  int operation,
                  int type,
                  void *values,
                  size_t count);

/**
 * Begins portolan_scan(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_scan().
 */
int portolan_iscan(struct portolan_node_t *node,
                   const struct portolan_group_t *group,
                   int operation,
                   int type,
                   void *values,
                   size_t count,
                   portolan_request_t *request);

/**
 * Combines `count` values of all members before this one, element by element, in place. Member 0 keeps
 * its values.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_exscan(struct portolan_node_t *node,
                    const struct portolan_group_t *group,
                    int operation,
                    int type,
                    void *values,
                    size_t count);

/**
 * Begins portolan_exscan(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_exscan().
 */
int portolan_iexscan(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     int operation,
                     int type,
                     void *values,
                     size_t count,
                     portolan_request_t *request);

/**
 * Combines `count` elements of `element_len` bytes of all members like portolan_allreduce(), by a
 * function of the program, in the order of the members. The function must be associative.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_allreduce_by(struct portolan_node_t *node,
                          const struct portolan_group_t *group,
                          portolan_combine_t function,
                          void *user,
                          size_t element_len,
                          void *values,
                          size_t count);

/**
 * Begins portolan_allreduce_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_allreduce_by().
 */
int portolan_iallreduce_by(struct portolan_node_t *node,
                           const struct portolan_group_t *group,
                           portolan_combine_t function,
                           void *user,
                           size_t element_len,
                           void *values,
                           size_t count,
                           portolan_request_t *request);

/**
 * Combines elements like portolan_allreduce_by(), for member `root` only.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_reduce_by(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       uint32_t root,
                       portolan_combine_t function,
                       void *user,
                       size_t element_len,
                       void *values,
                       size_t count);

/**
 * Begins portolan_reduce_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_reduce_by().
 */
int portolan_ireduce_by(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        uint32_t root,
                        portolan_combine_t function,
                        void *user,
                        size_t element_len,
                        void *values,
                        size_t count,
                        portolan_request_t *request);

/**
 * Combines elements like portolan_allreduce_by(), and stores an equal part of the result, `count`
 * elements, in `own` of each member. Those at `values` are not changed.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_reduce_scatter_by(struct portolan_node_t *node,
                               const struct portolan_group_t *group,
                               portolan_combine_t function,
                               void *user,
                               size_t element_len,
                               const void *values,
                               void *own,
                               size_t count);

/**
 * Begins portolan_reduce_scatter_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_reduce_scatter_by().
 */
int portolan_ireduce_scatter_by(struct portolan_node_t *node,
                                const struct portolan_group_t *group,
                                portolan_combine_t function,
                                void *user,
                                size_t element_len,
                                const void *values,
                                void *own,
                                size_t count,
                                portolan_request_t *request);

/**
 * Combines elements of this member and of all before it, by a function like
 * portolan_allreduce_by(), in place.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_scan_by(struct portolan_node_t *node,
                     const struct portolan_group_t *group,
                     portolan_combine_t function,
                     void *user,
                     size_t element_len,
                     void *values,
                     size_t count);

/**
 * Begins portolan_scan_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_scan_by().
 */
int portolan_iscan_by(struct portolan_node_t *node,
                      const struct portolan_group_t *group,
                      portolan_combine_t function,
                      void *user,
                      size_t element_len,
                      void *values,
                      size_t count,
                      portolan_request_t *request);

/**
 * Combines elements of all members before this one, by a function like portolan_allreduce_by(), in
 * place. Member 0 keeps its elements.
 *
 * Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
 */
int portolan_exscan_by(struct portolan_node_t *node,
                       const struct portolan_group_t *group,
                       portolan_combine_t function,
                       void *user,
                       size_t element_len,
                       void *values,
                       size_t count);

/**
 * Begins portolan_exscan_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
 * memory for the result must not be used, and the other memory must not change.
 *
 * Errors: those of portolan_exscan_by().
 */
int portolan_iexscan_by(struct portolan_node_t *node,
                        const struct portolan_group_t *group,
                        portolan_combine_t function,
                        void *user,
                        size_t element_len,
                        void *values,
                        size_t count,
                        portolan_request_t *request);

/**
 * Allocates `len` zeroed bytes for bulk messages. These are whole, populated pages, and large
 * pages if the system has them.
 */
int portolan_alloc(size_t len, void **memory);

/**
 * Returns 1 if memory of portolan_alloc() consists of large pages, as far as the system reports,
 * and 0 otherwise. Large pages are requested from 2 MiB on.
 *
 * Errors: PORTOLAN_ERR_ARGUMENT for other memory.
 */
int portolan_has_large_pages(const void *memory);

/**
 * Frees memory of portolan_alloc(). Null has no effect. No operation may be using the memory.
 */
int portolan_free(void *memory);

/**
 * Registers `len` bytes of memory for all processes of the job that have `*key`, a random number.
 * `access`: PORTOLAN_READ_ACCESS, PORTOLAN_WRITE_ACCESS or both. The program may continue to use
 * the memory. Changes by other processes appear during calls of the library or, within a host, at
 * any time. The memory must stay valid until portolan_deregister() or portolan_close().
 *
 * Errors: PORTOLAN_ERR_ARGUMENT, PORTOLAN_ERR_NULL.
 */
int portolan_register(struct portolan_node_t *node,
                      void *memory,
                      size_t len,
                      uint32_t access,
                      uint64_t *key);

/**
 * Deregisters a region. Operations on it, pending or later, fail with PORTOLAN_ERR_REMOTE_REFUSED.
 *
 * Errors: PORTOLAN_ERR_NO_REGION.
 */
int portolan_deregister(struct portolan_node_t *node, uint64_t key);

/**
 * Puts `len` bytes into the memory of another process. They are in place when it returns. An
 * operation that is submitted after a put, to the same process and on the same lane, finds its
 * bytes in place. If two operations are longer than 64 KiB (16 KiB within a host) and touch the
 * same bytes, the second must wait for the completion of the first.
 *
 * Errors: PORTOLAN_ERR_REMOTE_REFUSED, those of portolan_send().
 */
int portolan_put(struct portolan_node_t *node,
                 const struct portolan_remote_t *to,
                 const void *buffer,
                 size_t len);

/**
 * Gets `len` bytes from the memory of another process.
 *
 * Errors: those of portolan_put().
 */
int portolan_get(struct portolan_node_t *node,
                 const struct portolan_remote_t *from,
                 void *buffer,
                 size_t len);

/**
 * Starts a nonblocking put. The request is complete when the bytes are in place. Until then, the
 * buffer must not change. Handlers may call it.
 *
 * Errors: those of portolan_put().
 */
int portolan_iput(struct portolan_node_t *node,
                  const struct portolan_remote_t *to,
                  const void *buffer,
                  size_t len,
                  portolan_request_t *request);

/**
 * Starts a nonblocking get. The buffer must not be used until the request is complete. Handlers
 * may call it.
 *
 * Errors: those of portolan_put().
 */
int portolan_iget(struct portolan_node_t *node,
                  const struct portolan_remote_t *from,
                  void *buffer,
                  size_t len,
                  portolan_request_t *request);

/**
 * Stores the next received notice of a put with PORTOLAN_NOTIFY in `*notice`. Returns 1, or 0 if
 * there is none. It makes no progress.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT when there is none and none can arrive, because all other
 * processes of the job have ended.
 */
int portolan_next_notice(struct portolan_node_t *node, struct portolan_notice_t *notice);

/**
 * Waits for the next notice of a put with PORTOLAN_NOTIFY, and stores it in `*notice`.
 *
 * Errors: PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_wait_notice(struct portolan_node_t *node, struct portolan_notice_t *notice);

/**
 * Waits like portolan_wait_notice(), at most `timeout_ns` nanoseconds.
 *
 * Errors: PORTOLAN_ERR_TIMEOUT, PORTOLAN_ERR_NOBODY_LEFT.
 */
int portolan_wait_notice_for(struct portolan_node_t *node,
                             uint64_t timeout_ns,
                             struct portolan_notice_t *notice);

/**
 * Changes numbers in the memory of another process. They are changed when it returns, and `before`
 * has their previous values. Each number changes atomically. The limit is 4096 bytes of numbers.
 *
 * Errors: PORTOLAN_ERR_REMOTE_REFUSED, PORTOLAN_ERR_ARGUMENT, those of portolan_send().
 */
int portolan_atomic(struct portolan_node_t *node,
                    const struct portolan_remote_t *at,
                    const struct portolan_atomic_t *what);

/**
 * Starts a nonblocking portolan_atomic(). The operands may be reused when it returns. `before`
 * must not be used until the request is complete. Handlers may call it.
 *
 * Errors: those of portolan_atomic().
 */
int portolan_iatomic(struct portolan_node_t *node,
                     const struct portolan_remote_t *at,
                     const struct portolan_atomic_t *what,
                     portolan_request_t *request);

/**
 * Stores the counters of the protocol in this process in `*counters`.
 */
int portolan_counters(struct portolan_node_t *node, struct portolan_counters_t *counters);

/**
 * Calls `tell` for each reason for which this process dropped something. The arguments are the
 * reason's name, valid during that call, and the number of drops. Returns the number of reasons.
 */
int portolan_drops(struct portolan_node_t *node, void (*tell)(const char *reason,
                                                              uint64_t count,
                                                              void *user), void *user);

/**
 * Returns the state of the stored model of this machine's paths: PORTOLAN_MODEL_USED or another
 * constant of its group. A sentence with the file and the reason is copied to `text`, cut to `len`
 * bytes with a terminating zero. With `len` 0, `text` may be null.
 */
int portolan_model(struct portolan_node_t *node, char *text, size_t len);

/**
 * Uses `*choices` from now on instead of the stored model. They select the path of a message, its
 * announcement, and the pieces that it is cut into. The limits of the protocol still apply.
 *
 * Errors: PORTOLAN_ERR_NULL, PORTOLAN_ERR_STRUCT_SIZE.
 */
int portolan_choose(struct portolan_node_t *node, const struct portolan_choices_t *choices);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PORTOLAN_H */
