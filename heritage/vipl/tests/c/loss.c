/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The network loses frames. Unreliable VIs may lose messages, but nothing else happens; reliable
 * VIs lose none. Process 1 sends numbered messages, and process 0 checks which arrive. */

#include "errors.h"

enum { COUNT = 600, LONG_LEN = 9000 };

static memory descriptors, data;

static void receive_all(VIP_VI_HANDLE vi, unsigned expected) {
    unsigned got = 0, last = 0;
    VIP_DESCRIPTOR *done;
    for (unsigned i = 0; i < COUNT; i++) {
        VIP_DESCRIPTOR *recv = describe(&descriptors, i, &data, 16 * i, 16);
        OK(VipPostRecv(vi, recv, descriptors.handle));
    }
    barrier();
    /* The last message is sent over another, reliable VI, after all others. */
    await_word();
    for (;;) {
        VIP_RETURN result = VipRecvWait(vi, got < expected ? PATIENCE : 200, &done);
        if (result == VIP_TIMEOUT || !done) break;
        OK(result);
        unsigned number;
        memcpy(&number, data.bytes + 16 * got, sizeof number);
        /* Each arrives once, intact and in order, in the descriptors in the order they were
         * posted. */
        CHECK(done->CS.Length == 16 && number > last && number <= COUNT);
        last = number;
        got++;
    }
    CHECK(got >= expected && got > 0);
    say_word();
    printf("%u of %u have come\n", got, (unsigned)COUNT);
}

static void send_all(VIP_VI_HANDLE vi) {
    barrier();
    for (unsigned number = 1; number <= COUNT; number++) {
        VIP_DESCRIPTOR *send = describe(&descriptors, number - 1, &data, 16 * (number - 1), 16);
        memcpy(data.bytes + 16 * (number - 1), &number, sizeof number);
        OK(VipPostSend(vi, send, descriptors.handle));
    }
    for (unsigned number = 0; number < COUNT; number++) sent(vi);
    say_word();
    await_word();
}

/* Longer messages are split, and retransmitted at any level. */
static void longer(VIP_VI_HANDLE vi) {
    for (unsigned i = 0; i < 10; i++) {
        if (me == 0) OK(VipPostRecv(vi, describe(&descriptors, 0, &data, 0, LONG_LEN), descriptors.handle));
        barrier();
        if (me == 0) {
            CHECK(received(vi)->CS.Length == LONG_LEN && is_filled(data.bytes, LONG_LEN, 1, i));
        } else {
            fill(data.bytes, LONG_LEN, 1, i);
            OK(VipPostSend(vi, describe(&descriptors, 0, &data, 0, LONG_LEN), descriptors.handle));
            sent(vi);
        }
        barrier();
    }
}

int main(void) {
    static const unsigned levels[] = {VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION, VIP_SERVICE_UNRELIABLE};
    begin();
    watch_errors();
    descriptors = memory_of(64 * COUNT, 0);
    data = memory_of(16 * COUNT, 0);
    for (unsigned i = 0; i < 3; i++) {
        VIP_VI_HANDLE vi = vi_with(levels[i], NULL, NULL);
        connect_vi(vi, "loss");
        if (levels[i] != VIP_SERVICE_UNRELIABLE) longer(vi);
        if (me == 0)
            receive_all(vi, levels[i] == VIP_SERVICE_UNRELIABLE ? 0 : COUNT);
        else
            send_all(vi);
        CHECK(state_of(vi) == VIP_STATE_CONNECTED && is_quiet());
        barrier();
        destroy(vi);
        barrier();
    }
    /* The same on a new VI, because descriptors are left on the first one. */
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_UNRELIABLE, NULL, NULL);
    connect_vi(vi, "longer");
    longer(vi);
    destroy(vi);
    barrier();
    printf("process %u is done\n", me);
    free_memory(&data);
    free_memory(&descriptors);
    end();
    return 0;
}
