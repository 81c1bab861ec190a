/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Endpoints of Portolan for Open MPI's component btl/portolan.
 *
 * Generated from interfaces/openmpi/src by cbindgen: do not edit. It is internal to the component.
 * portolan_btl_error() explains the last failure of a call on this thread. If the endpoint was opened for
 * several threads, they may call every function except portolan_btl_open() and portolan_btl_close() at once. */

#ifndef PORTOLAN_BTL_H
#define PORTOLAN_BTL_H

#include <stddef.h>
#include <stdint.h>

/* An open endpoint. */
typedef struct portolan_btl portolan_btl_t;

/**
 * Length of an endpoint's address in bytes.
 */
#define PORTOLAN_BTL_ADDRESS_LEN 64

/**
 * The operation is complete: the caller may reuse its memory, and no completion follows.
 */
#define PORTOLAN_BTL_DONE 1

/**
 * Success. For an operation: it was accepted, and a completion follows.
 */
#define PORTOLAN_BTL_OK 0

/**
 * Back-pressure: poll, then retry.
 */
#define PORTOLAN_BTL_AGAIN -1

/**
 * The peer has died or cannot be reached.
 */
#define PORTOLAN_BTL_GONE -2

/**
 * A null pointer or an invalid argument.
 */
#define PORTOLAN_BTL_INVALID -3

/**
 * The operation failed; portolan_btl_error() has the reason.
 */
#define PORTOLAN_BTL_FAILED -4

/**
 * A bug in this library.
 */
#define PORTOLAN_BTL_INTERNAL -5

/**
 * A message was sent.
 */
#define PORTOLAN_BTL_SENT 0

/**
 * Memory of a peer was read, written or changed.
 */
#define PORTOLAN_BTL_REMOTE 1

/**
 * Operations on a number in memory of a peer.
 */
typedef enum portolan_btl_op_t {
  PORTOLAN_BTL_ADD,
  PORTOLAN_BTL_AND,
  PORTOLAN_BTL_OR,
  PORTOLAN_BTL_XOR,
  PORTOLAN_BTL_LAND,
  PORTOLAN_BTL_LOR,
  PORTOLAN_BTL_LXOR,
  PORTOLAN_BTL_SWAP,
  PORTOLAN_BTL_MIN,
  PORTOLAN_BTL_MAX,
  PORTOLAN_BTL_COMPARE_SWAP,
} portolan_btl_op_t;

/**
 * Kinds of numbers.
 */
typedef enum portolan_btl_number_t {
  PORTOLAN_BTL_INT32,
  PORTOLAN_BTL_INT64,
  PORTOLAN_BTL_FLOAT,
  PORTOLAN_BTL_DOUBLE,
} portolan_btl_number_t;

/**
 * The completion of an operation.
 */
typedef struct portolan_btl_done_t {
  /**
   * Context of the operation, as the caller passed it.
   */
  uint64_t context;
  /**
   * PORTOLAN_BTL_SENT or PORTOLAN_BTL_REMOTE.
   */
  int kind;
  /**
   * PORTOLAN_BTL_OK, PORTOLAN_BTL_GONE or PORTOLAN_BTL_FAILED.
   */
  int status;
  /**
   * Reason of a failure as text, valid during the call. Null after success.
   */
  const char *why;
} portolan_btl_done_t;

/**
 * Callbacks. They run in portolan_btl_poll() and may call every function of this interface except
 * portolan_btl_close().
 */
typedef struct portolan_btl_hooks_t {
  /**
   * First argument of the callbacks.
   */
  void *user;
  /**
   * Called for each message. Its bytes are valid during the call.
   */
  void (*on_message)(void *user, uint8_t tag, const void *bytes, size_t len);
  /**
   * Called for each completion.
   */
  void (*on_done)(void *user, const struct portolan_btl_done_t *done);
} portolan_btl_hooks_t;

/**
 * A transfer between local memory and memory of a peer.
 */
typedef struct portolan_btl_transfer_t {
  /**
   * The peer.
   */
  uint32_t peer;
  /**
   * Local memory, in use until the completion.
   */
  void *local;
  /**
   * Length in bytes.
   */
  size_t len;
  /**
   * Address at the peer.
   */
  uint64_t remote;
  /**
   * Key of the peer's registration.
   */
  uint64_t key;
  /**
   * Returned with the completion.
   */
  uint64_t context;
} portolan_btl_transfer_t;

/**
 * An atomic operation on one number in memory of a peer.
 */
typedef struct portolan_btl_atomic_t {
  /**
   * The peer.
   */
  uint32_t peer;
  /**
   * The operation.
   */
  enum portolan_btl_op_t op;
  /**
   * Kind of the number. A number of 32 bits is the low half of the words below.
   */
  enum portolan_btl_number_t number;
  /**
   * The operand.
   */
  uint64_t operand;
  /**
   * Expected value, for PORTOLAN_BTL_COMPARE_SWAP only.
   */
  uint64_t compare;
  /**
   * Receives the previous value; may be null.
   */
  void *before;
  /**
   * Address at the peer.
   */
  uint64_t remote;
  /**
   * Key of the peer's registration.
   */
  uint64_t key;
  /**
   * Returned with the completion.
   */
  uint64_t context;
} portolan_btl_atomic_t;

/**
 * Opens an endpoint, for several threads at once if `threads` is not 0. Returns null on failure, which
 * portolan_btl_error() explains.
 *
 * # Safety
 * `hooks` is valid, and what it names stays so until portolan_btl_close().
 */
portolan_btl_t *portolan_btl_open(const struct portolan_btl_hooks_t *hooks, int threads);

/**
 * Returns the reason of the last failure on this thread.
 */
const char *portolan_btl_error(void);

/**
 * Closes an endpoint after its messages have arrived.
 *
 * # Safety `btl` is open and not used afterwards, and no hook is running.
 */
void portolan_btl_close(portolan_btl_t *btl);

/**
 * Writes the PORTOLAN_BTL_ADDRESS_LEN bytes of the endpoint's own address.
 *
 * # Safety
 * `btl` is open; there is room for the address.
 */
void portolan_btl_address(const portolan_btl_t *btl, uint8_t *address);

/**
 * Adds the owner of an address as a peer. `peer` receives its number, which is the same for the same address.
 *
 * # Safety
 * `btl` is open; `address` has PORTOLAN_BTL_ADDRESS_LEN bytes; there is room for the number.
 */
int portolan_btl_insert(const portolan_btl_t *btl, const uint8_t *address, uint32_t *peer);

/**
 * Removes a peer. Messages that were sent to it still arrive.
 *
 * # Safety
 * `btl` is open.
 */
void portolan_btl_remove(const portolan_btl_t *btl, uint32_t peer);

/**
 * Sends a header and a payload as one message without queueing it, and returns PORTOLAN_BTL_DONE. After
 * PORTOLAN_BTL_AGAIN or another failure nothing was sent.
 *
 * # Safety
 * `btl` is open; both pieces are readable.
 */
int portolan_btl_inject(const portolan_btl_t *btl,
                        uint32_t peer,
                        uint8_t tag,
                        const void *head,
                        size_t head_len,
                        const void *body,
                        size_t body_len);

/**
 * Sends a message. Returns PORTOLAN_BTL_DONE if it is complete, or PORTOLAN_BTL_OK if a completion follows. The
 * memory stays in use until then.
 *
 * # Safety
 * `btl` is open; the bytes are readable, and stay as they are until the message has ended.
 */
int portolan_btl_send(const portolan_btl_t *btl,
                      uint32_t peer,
                      uint8_t tag,
                      const void *bytes,
                      size_t len,
                      uint64_t context);

/**
 * Registers memory, which peers may read and write by its addresses. `key` receives the key that they need.
 *
 * # Safety
 * `btl` is open; the memory is readable and writable until portolan_btl_deregister(); there is room for the key.
 */
int portolan_btl_register(const portolan_btl_t *btl,
                          void *memory,
                          size_t len,
                          uint64_t *key);

/**
 * Deregisters memory. Peers cannot access it after the call.
 *
 * # Safety
 * `btl` is open.
 */
void portolan_btl_deregister(const portolan_btl_t *btl, uint64_t key);

/**
 * Reads memory of a peer. A completion follows.
 *
 * # Safety
 * `btl` is open and `what` valid; the local memory is writable, and not used otherwise until the completion.
 */
int portolan_btl_get(const portolan_btl_t *btl, const struct portolan_btl_transfer_t *what);

/**
 * Writes memory of a peer. A completion follows when the bytes have arrived.
 *
 * # Safety
 * `btl` is open and `what` valid; the local memory is readable, and unchanged until the completion.
 */
int portolan_btl_put(const portolan_btl_t *btl, const struct portolan_btl_transfer_t *what);

/**
 * Changes a number in memory of a peer. A completion follows.
 *
 * # Safety
 * `btl` is open and `what` valid; `before` is writable until the completion, unless it is null.
 */
int portolan_btl_atomic(const portolan_btl_t *btl, const struct portolan_btl_atomic_t *what);

/**
 * Runs a turn of the endpoint and calls the callbacks. Returns the number of messages and completions. Returns 0
 * at once in a callback, and while another thread polls.
 *
 * # Safety
 * `btl` is open.
 */
int portolan_btl_poll(const portolan_btl_t *btl);

#endif  /* PORTOLAN_BTL_H */
