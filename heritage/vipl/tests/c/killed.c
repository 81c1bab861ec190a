/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Process 1 is killed. At each level the other side is notified, and its descriptors complete. */

#include "errors.h"

#include <signal.h>

int main(void) {
    static const unsigned levels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION};
    static const char *names[] = {"unreliable", "delivery", "reception"};
    VIP_VI_HANDLE vis[3], waiting;
    begin();
    memory descriptors = memory_of(64 * 16, 0), data = memory_of(1 << 20, 0);
    for (unsigned i = 0; i < 3; i++) {
        vis[i] = vi_with(levels[i], NULL, NULL);
        connect_vi(vis[i], names[i]);
    }
    barrier();
    /* Process 1 may accept some of the next messages while it waits for this one, but not all of
     * them. */
    if (me == 1) {
        await_word();
        raise(SIGKILL);
    }
    VIP_DESCRIPTOR *word = (VIP_DESCRIPTOR *)(void *)barrier_descriptors.bytes;
    memset(word, 0, sizeof *word);
    OK(VipPostSend(barrier_vi, word, barrier_descriptors.handle));
    for (unsigned i = 0; i < 3; i++) {
        VIP_DESCRIPTOR *done;
        OK(VipPostRecv(vis[i], describe(&descriptors, 3 * i, &data, 0, 8), descriptors.handle));
        OK(VipPostSend(vis[i], describe(&descriptors, 3 * i + 1, &data, 0, 1 << 20), descriptors.handle));
        CHECK(failed_recv(vis[i]) == VIP_STATUS_DESC_FLUSHED_ERROR);
        unsigned status = failed_send(vis[i]);
        CHECK(status == VIP_STATUS_TRANSPORT_ERROR || status == VIP_STATUS_DESC_FLUSHED_ERROR);
        CHECK(state_of(vis[i]) == VIP_STATE_ERROR);
        OK(VipPostSend(vis[i], describe(&descriptors, 3 * i + 1, &data, 0, 8), descriptors.handle));
        CHECK(failed_send(vis[i]) == VIP_STATUS_DESC_FLUSHED_ERROR);
        CHECK(VipSendDone(vis[i], &done) == VIP_DESCRIPTOR_ERROR && !done);
        destroy(vis[i]);
    }
    waiting = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address local = address_of(0, "x"), remote = address_of(1, "x");
    FAILS(VIP_NOT_REACHABLE, "has ended", VipConnectRequest(waiting, &local.net, &remote.net, PATIENCE, NULL));
    FAILS(VIP_NOT_REACHABLE, "has ended", VipConnectPeerRequest(waiting, &local.net, &remote.net, PATIENCE));
    CHECK(state_of(waiting) == VIP_STATE_IDLE);
    puts("process 0 was notified");
    return 0;
}
