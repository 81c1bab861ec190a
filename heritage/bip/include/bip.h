/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The programming interface of BIP, the Basic Interface for Parallelism, on Portolan.
 *
 * Generated from heritage/bip by cbindgen: do not edit. docs/heritage.md describes each function,
 * and names the choices that were made where the original is unknown. Lengths are in words of
 * four bytes. A mistake or a network error is printed on standard error and ends the job. */

#ifndef BIP_H
#define BIP_H

#include <stddef.h>
#include <stdint.h>

/**
 * Words of the longest short message: such a one waits at its receiver, and its send does not wait for
 * the receive. It is 256 bytes, as in BIP.
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
 * Number of this process, from 0; valid after bip_init(). Do not write to it.
 */
extern int bip_mynode;

/**
 * Processes of the job; valid after bip_init(). Do not write to it.
 */
extern int bip_numnodes;

/**
 * Joins the job, and waits for all its other processes, which may start in any order. Called once,
 * before every other function but bip_taginit(). The job is left when the process ends: what was sent
 * arrives before that.
 */
void bip_init(void);

/**
 * Reserves `nbufs` buffers of `size` words, at most BIPSMALLSIZE, for short messages with `tag`. Called
 * before bip_init(). Portolan needs no reservation, so the arguments are checked, and that is all.
 */
void bip_taginit(int tag,
                 int size,
                 int nbufs);

/**
 * Sends `len` words to node `dst`, without a tag. When it returns, they may be used again; of a message
 * above BIPSMALLSIZE words the receive may have to be there before that.
 */
void bip_send(int dst,
              const int *buf,
              int len);

/**
 * As bip_send(), with `tag`, which chooses the receive.
 */
void bip_tsend(int dst, int tag, const int *buf, int len);

/**
 * Begins to send `len` words to node `dst`, without a tag; the number of the send. The words must stay as
 * they are until bip_swait() has returned or bip_stest() has said 1. One send may be under way.
 */
int bip_isend(int dst,
              const int *buf,
              int len);

/**
 * As bip_isend(), with `tag`.
 */
int bip_tisend(int dst, int tag, const int *buf, int len);

/**
 * Waits until the send with the number `id` has ended.
 */
void bip_swait(int id);

/**
 * Whether the send with the number `id` has ended: 1 or 0.
 */
int bip_stest(int id);

/**
 * Waits for the next message without a tag, of at most `maxlen` words; its length in words.
 */
int bip_recv(int *buf, int maxlen);

/**
 * Waits for the next message with `tag`, of at most `maxlen` words; its length in words.
 */
int bip_trecv(int tag, int *buf, int maxlen);

/**
 * As bip_trecv(); `src` gets the number of the sender.
 */
int bip_trecvx(int tag, int *buf, int maxlen, int *src);

/**
 * Begins to receive the next message without a tag, of at most `maxlen` words; the number of the
 * receive. The words are the library's until bip_rwait() has returned or bip_rtest() has told a length.
 */
int bip_irecv(int *buf,
              int maxlen);

/**
 * As bip_irecv(), with `tag`. One receive may be under way for each tag.
 */
int bip_tirecv(int tag, int *buf, int maxlen);

/**
 * Waits until the receive with the number `id` has ended; the length of the message in words.
 */
int bip_rwait(int id);

/**
 * The length in words of the message that the receive with the number `id` has got, or -1 while it has
 * got none.
 */
int bip_rtest(int id);

/**
 * As bip_rwait(); `host` gets the number of the sender.
 */
int bip_rwaitx(int id, int *host);

/**
 * As bip_rtest(); `host` gets the number of the sender, if there is one.
 */
int bip_rtestx(int id, int *host);

/**
 * Receives the next message with `tag` if it has come and is short: its length in words, or -1 when none
 * has come, or a long one is the first.
 */
int bip_tnrecv(int tag,
               int *buf,
               int maxlen);

/**
 * As bip_tnrecv(); `src` gets the number of the sender, if there is a message.
 */
int bip_tnrecvx(int tag, int *buf, int maxlen, int *src);

/**
 * Waits for the next message with `tag`, which must be short, and returns where it lies in the library's
 * memory; `len` gets its length in words, `node` the number of the sender. It stays there until
 * bip_tfreemsg(); until then the tag has no other receive.
 */
int *bip_tgetmsg(int tag,
                 int *len,
                 int *node);

/**
 * As bip_tgetmsg(), without waiting: null when no message has come, or a long one is the first.
 */
int *bip_tngetmsg(int tag, int *len, int *node);

/**
 * Gives back the message that bip_tgetmsg() has returned.
 */
void bip_tfreemsg(int tag);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BIP_H */
