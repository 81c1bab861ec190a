/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts asynchronous errors in a handler, and waits for them. */
#ifndef ERRORS_H
#define ERRORS_H

#include "check.h"

#include <stdatomic.h>

static atomic_uint seen[VIP_ERROR_CATASTROPHIC + 1];
static VIP_ERROR_DESCRIPTOR last_of[VIP_ERROR_CATASTROPHIC + 1];

static inline void on_error(void *context, VIP_ERROR_DESCRIPTOR *error) {
    CHECK(context == &seen && error->NicHandle == nic && error->ErrorCode <= VIP_ERROR_CATASTROPHIC);
    last_of[error->ErrorCode] = *error;
    atomic_fetch_add(&seen[error->ErrorCode], 1);
}

static inline void watch_errors(void) { OK(VipErrorCallback(nic, &seen, on_error)); }

/* Waits for an error of a VI. */
static inline void await_error(unsigned code, VIP_VI_HANDLE vi) {
    while (atomic_load(&seen[code]) == 0) state_of(vi);
    CHECK(last_of[code].ViHandle == vi);
    atomic_store(&seen[code], 0);
}

/* Returns true if no error was reported, except that the other side has ended connections. */
static inline int is_quiet(void) {
    for (unsigned i = 0; i <= VIP_ERROR_CATASTROPHIC; i++)
        if (i != VIP_ERROR_CONN_LOST && atomic_load(&seen[i])) return 0;
    return 1;
}

static inline void await_state(VIP_VI_HANDLE vi, VIP_VI_STATE state) {
    while (state_of(vi) != state) {}
}

/* Waits for the next descriptor of the send or receive queue, which must have failed. Returns its
 * error. */
static inline unsigned failed_send(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done = NULL;
    CHECK(VipSendWait(vi, PATIENCE, &done) == VIP_DESCRIPTOR_ERROR && done);
    CHECK(done->CS.Status & VIP_STATUS_DONE);
    return done->CS.Status & VIP_STATUS_ERROR_MASK;
}

static inline unsigned failed_recv(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done = NULL;
    CHECK(VipRecvWait(vi, PATIENCE, &done) == VIP_DESCRIPTOR_ERROR && done);
    CHECK((done->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_RECEIVE);
    return done->CS.Status & VIP_STATUS_ERROR_MASK;
}

#endif
