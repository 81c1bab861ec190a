/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of BIP, the Basic Interface for Parallelism, on Portolan.
 *
 * Generated from heritage/bip by cbindgen: do not edit. docs/reference/heritage.md names
 * the choices that were made where the original is unknown. Lengths are in words of
 * four bytes. A mistake or a network error is printed on standard error and ends the job. */

#ifndef BIP_H
#define BIP_H

#include <stddef.h>
#include <stdint.h>

/**
 * Maximum number of words of a short message. A short message waits at its receiver, and its send
 * does not wait for the receive. It is 256 bytes, as in BIP.
 */
#define BIPSMALLSIZE 64

/**
 * Highest tag; the lowest is 0.
 */
#define BIPMAXTAG 65535

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Number of this process, from 0. Valid after bip_init(); do not write to it.
 */
extern int bip_mynode;

/**
 * Number of processes in the job. Valid after bip_init(); do not write to it.
 */
extern int bip_numnodes;

/**
 * Joins the job, and waits for all its other processes, which may start in any order. Call it
 * once, before all other functions except bip_taginit(). The process leaves the job when it exits,
 * after all sent messages have arrived.
 */
void bip_init(void);

/**
 * Reserves `nbufs` buffers of `size` words, at most BIPSMALLSIZE, for short messages with `tag`.
 * Call it before bip_init(). Portolan needs no reservation, so only the arguments are checked.
 */
void bip_taginit(int tag, int size, int nbufs);

/**
 * Sends `len` words to node `dst`, without a tag. The words may be reused when it returns. A
 * message of more than BIPSMALLSIZE words may have to wait for its receive.
 */
void bip_send(int dst, const int *buf, int len);

/**
 * Sends a message with `tag`, which selects the receive, as bip_send() does.
 */
void bip_tsend(int dst, int tag, const int *buf, int len);

/**
 * Starts a nonblocking send of `len` words to node `dst`, without a tag. Returns the number of the
 * send. Only one send may be in progress. The words must not be changed until bip_swait() has
 * returned or bip_stest() has returned 1.
 */
int bip_isend(int dst, const int *buf, int len);

/**
 * Starts a nonblocking send with `tag`, like bip_isend().
 */
int bip_tisend(int dst, int tag, const int *buf, int len);

/**
 * Waits until the send with the number `id` is complete.
 */
void bip_swait(int id);

/**
 * Returns 1 if the send with the number `id` is complete, or 0.
 */
int bip_stest(int id);

/**
 * Waits for the next message without a tag, of at most `maxlen` words. Returns its length in
 * words.
 */
int bip_recv(int *buf, int maxlen);

/**
 * Waits for the next message with `tag`, of at most `maxlen` words. Returns its length in words.
 */
int bip_trecv(int tag, int *buf, int maxlen);

/**
 * Receives a message as bip_trecv() does, and stores the number of the sender in `src`.
 */
int bip_trecvx(int tag, int *buf, int maxlen, int *src);

/**
 * Starts a nonblocking receive of the next message without a tag, of at most `maxlen` words.
 * Returns the number of the receive. The library owns the words until bip_rwait() has returned or
 * bip_rtest() has returned a length.
 */
int bip_irecv(int *buf, int maxlen);

/**
 * Starts a nonblocking receive of a message with `tag`, like bip_irecv(). Each tag may have one
 * receive in progress.
 */
int bip_tirecv(int tag, int *buf, int maxlen);

/**
 * Waits until the receive with the number `id` is complete. Returns the length of the message in
 * words.
 */
int bip_rwait(int id);

/**
 * Returns the length in words of the message that the receive `id` has received, or -1 if it is
 * not complete.
 */
int bip_rtest(int id);

/**
 * Waits as bip_rwait() does, and stores the number of the sender in `host`.
 */
int bip_rwaitx(int id, int *host);

/**
 * Tests as bip_rtest() does, and stores the number of the sender in `host` if the receive is
 * complete.
 */
int bip_rtestx(int id, int *host);

/**
 * Receives the next message with `tag` if a short one has arrived. Returns its length in words, or
 * -1 if no message has arrived or the first one is long.
 */
int bip_tnrecv(int tag, int *buf, int maxlen);

/**
 * Receives as bip_tnrecv() does, and stores the number of the sender in `src` if there is a
 * message.
 */
int bip_tnrecvx(int tag, int *buf, int maxlen, int *src);

/**
 * Waits for the next message with `tag`, which must be short, and returns a pointer to it in the
 * library's memory. `len` receives its length in words, `node` the number of the sender. The
 * message is valid until bip_tfreemsg(); until then the tag can have no other receive.
 */
int *bip_tgetmsg(int tag, int *len, int *node);

/**
 * Returns a message as bip_tgetmsg() does, without waiting. Returns null if no message has arrived
 * or the first one is long.
 */
int *bip_tngetmsg(int tag, int *len, int *node);

/**
 * Releases the message that bip_tgetmsg() or bip_tngetmsg() has returned.
 */
void bip_tfreemsg(int tag);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BIP_H */
