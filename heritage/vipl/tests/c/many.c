/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* 1,024 VIs in one process, half of them connected with the other half, and each used in both
 * directions. Their memory is limited, and is printed. */

#include "check.h"

#include <malloc.h>

enum { PAIRS = 512, TURNS = 3 };

static VIP_VI_HANDLE vis[2 * PAIRS];

static void join_pair(unsigned i) {
    char one[16], two[16];
    snprintf(one, sizeof one, "one %u", i);
    snprintf(two, sizeof two, "two %u", i);
    address from = address_of(me, one), to = address_of(me, two);
    OK(VipConnectPeerRequest(vis[2 * i], &from.net, &to.net, PATIENCE));
    OK(VipConnectPeerRequest(vis[2 * i + 1], &to.net, &from.net, PATIENCE));
    OK(VipConnectPeerWait(vis[2 * i], NULL));
    OK(VipConnectPeerWait(vis[2 * i + 1], NULL));
}

int main(void) {
    open_nic();
    VIP_CQ_HANDLE cq;
    OK(VipCreateCQ(nic, 8 * PAIRS, &cq));
    memory descriptors = memory_of(4 * PAIRS * 64, 0), data = memory_of(2 * PAIRS * 64, 0);
    size_t before = mallinfo2().uordblks;
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        vis[i] = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, cq, cq);
        OK(VipPostRecv(vis[i], describe(&descriptors, i, &data, 64 * i, 64), descriptors.handle));
    }
    for (unsigned i = 0; i < PAIRS; i++) join_pair(i);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned i = 0; i < 2 * PAIRS; i++) {
            fill(data.bytes + 64 * i, 64, 0, i);
            VIP_DESCRIPTOR *send = describe(&descriptors, 2 * PAIRS + i, &data, 64 * i, 64);
            OK(VipPostSend(vis[i], send, descriptors.handle));
        }
        for (unsigned count = 0; count < 4 * PAIRS; count++) {
            VIP_VI_HANDLE vi;
            VIP_BOOLEAN is_recv;
            VIP_DESCRIPTOR *done;
            OK(VipCQWait(cq, PATIENCE, &vi, &is_recv));
            if (!is_recv) {
                OK(VipSendDone(vi, &done));
                continue;
            }
            OK(VipRecvDone(vi, &done));
            CHECK(done->CS.Length == 64);
            OK(VipPostRecv(vi, done, descriptors.handle));
        }
    }
    size_t each = (mallinfo2().uordblks - before) / (2 * PAIRS);
    printf("%zu bytes a VI\n", each);
    for (unsigned i = 0; i < 2 * PAIRS; i++) destroy(vis[i]);
    OK(VipDestroyCQ(cq));
    free_memory(&data);
    free_memory(&descriptors);
    OK(VipDestroyPtag(nic, ptag));
    OK(VipCloseNic(nic));
    return 0;
}
