/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One completion queue for 64 VIs. The completions of each VI are reported in order. */

#include "check.h"

enum { VIS = 64, EACH = 30, LEN = 100 };

static VIP_VI_HANDLE vis[VIS];

static unsigned index_of(VIP_VI_HANDLE vi) {
    unsigned i = 0;
    while (vis[i] != vi) CHECK(++i < VIS);
    return i;
}

int main(void) {
    begin();
    VIP_CQ_HANDLE cq;
    OK(VipCreateCQ(nic, 1, &cq));
    OK(VipResizeCQ(cq, 2 * VIS * EACH));
    memory descriptors = memory_of((size_t)2 * VIS * EACH * 64, 0);
    memory out = memory_of((size_t)VIS * EACH * LEN, 0), in = memory_of((size_t)VIS * EACH * LEN, 0);
    VIP_DESCRIPTOR *all = (VIP_DESCRIPTOR *)(void *)descriptors.bytes;
    for (unsigned i = 0; i < VIS; i++) {
        char name[16];
        snprintf(name, sizeof name, "vi %u", i);
        vis[i] = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
        for (unsigned n = 0; n < EACH; n++) {
            size_t at = (size_t)i * EACH + n;
            OK(VipPostRecv(vis[i], describe(&descriptors, (unsigned)at, &in, at * LEN, LEN), descriptors.handle));
        }
        connect_vi(vis[i], name);
    }
    barrier();
    for (unsigned n = 0; n < EACH; n++)
        for (unsigned i = 0; i < VIS; i++) {
            size_t at = (size_t)i * EACH + n;
            fill(out.bytes + at * LEN, LEN, me, (unsigned)at);
            VIP_DESCRIPTOR *send = describe(&descriptors, (unsigned)(VIS * EACH + at), &out, at * LEN, LEN);
            OK(VipPostSend(vis[i], send, descriptors.handle));
        }
    unsigned sends[VIS] = {0}, receives[VIS] = {0};
    for (unsigned count = 0; count < 2 * VIS * EACH; count++) {
        VIP_VI_HANDLE vi;
        VIP_BOOLEAN is_recv;
        VIP_DESCRIPTOR *done;
        if (count % 2)
            OK(VipCQWait(cq, PATIENCE, &vi, &is_recv));
        else
            while (VipCQDone(cq, &vi, &is_recv) == VIP_NOT_DONE) {}
        unsigned i = index_of(vi);
        if (is_recv) {
            unsigned at = i * EACH + receives[i]++;
            OK(VipRecvDone(vi, &done));
            CHECK(done == &all[at] && is_filled(in.bytes + (size_t)at * LEN, LEN, other, at));
        } else {
            OK(VipSendDone(vi, &done));
            CHECK(done == &all[VIS * EACH + i * EACH + sends[i]++]);
        }
    }
    VIP_VI_HANDLE none;
    VIP_BOOLEAN is_recv;
    CHECK(VipCQDone(cq, &none, &is_recv) == VIP_NOT_DONE);
    CHECK(VipCQWait(cq, 1, &none, &is_recv) == VIP_TIMEOUT);
    FAILS(VIP_ERROR_RESOURCE, "destroy them first", VipDestroyCQ(cq));
    barrier();
    for (unsigned i = 0; i < VIS; i++) destroy(vis[i]);
    OK(VipDestroyCQ(cq));
    printf("process %u is done\n", me);
    free_memory(&in);
    free_memory(&out);
    free_memory(&descriptors);
    end();
    return 0;
}
