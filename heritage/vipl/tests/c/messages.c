/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two processes exchange messages of all lengths and kinds, at each reliable level. */

#include "check.h"

enum { LONGEST = 300000, COUNT = 40 };

static const size_t lengths[] = {0, 1, 8, 64, 1000, 1024, 4095, 4096, 4097, 8192, 40000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Each length, in both directions at once. */
static void exchange_lengths(VIP_VI_HANDLE vi, memory *descriptors, memory *out, memory *in) {
    for (unsigned i = 0; i < LENGTHS; i++) {
        size_t len = lengths[i];
        memset(in->bytes, 0xa5, in->len);
        VIP_DESCRIPTOR *recv = describe(descriptors, 0, in, 0, LONGEST);
        OK(VipPostRecv(vi, recv, descriptors->handle));
        barrier();
        fill(out->bytes, len, me, i);
        VIP_DESCRIPTOR *send = describe(descriptors, 1, out, 0, len);
        send->CS.Control = VIP_CONTROL_IMMEDIATE;
        send->CS.ImmediateData = 1000 * me + i;
        OK(VipPostSend(vi, send, descriptors->handle));
        CHECK(received(vi) == recv);
        CHECK(recv->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE));
        CHECK(recv->CS.Length == len && recv->CS.ImmediateData == 1000 * other + i);
        CHECK(is_filled(in->bytes, len, other, i) && in->bytes[len] == 0xa5);
        CHECK(sent(vi) == send && send->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_SEND));
    }
}

/* Many messages at once, which complete in order. The receives are posted before. */
static void burst(VIP_VI_HANDLE vi, memory *descriptors, memory *out, memory *in) {
    enum { LEN = 5000 };
    for (unsigned i = 0; i < COUNT; i++)
        OK(VipPostRecv(vi, describe(descriptors, i, in, i * LEN, LEN), descriptors->handle));
    barrier();
    for (unsigned i = 0; i < COUNT; i++) {
        size_t len = i * 97 % LEN;
        fill(out->bytes + i * LEN, len, me, i);
        OK(VipPostSend(vi, describe(descriptors, COUNT + i, out, i * LEN, len), descriptors->handle));
    }
    VIP_DESCRIPTOR *all = (VIP_DESCRIPTOR *)(void *)descriptors->bytes;
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK(received(vi) == &all[i] && all[i].CS.Length == i * 97 % LEN);
        CHECK(is_filled(in->bytes + i * LEN, all[i].CS.Length, other, i));
        CHECK(sent(vi) == &all[COUNT + i]);
    }
    VIP_DESCRIPTOR *none = all;
    CHECK(VipRecvDone(vi, &none) == VIP_DESCRIPTOR_ERROR && !none);
    CHECK(VipSendDone(vi, &none) == VIP_DESCRIPTOR_ERROR && !none);
    barrier();
}

/* Segments of different lengths on both sides, three or more. */
static void gather_and_scatter(VIP_VI_HANDLE vi, memory *descriptors, memory *out, memory *in) {
    static const unsigned send_lens[] = {5, 0, 7000, 3}, recv_lens[] = {4000, 1, 4000, 9};
    VIP_DESCRIPTOR *recv = describe(descriptors, 0, in, 0, 0), *send = describe(descriptors, 2, out, 0, 0);
    VIP_DATA_SEGMENT *to = &recv->DS[0].Local, *from = &send->DS[0].Local;
    unsigned in_at = 0, out_at = 0;
    for (int i = 0; i < 4; i++) {
        to[i] = (VIP_DATA_SEGMENT){{.Address = in->bytes + in_at}, in->handle, recv_lens[i]};
        from[i] = (VIP_DATA_SEGMENT){{.Address = out->bytes + out_at}, out->handle, send_lens[i]};
        in_at += recv_lens[i] + 10;
        out_at += send_lens[i];
    }
    recv->CS.SegCount = send->CS.SegCount = 4;
    send->CS.Length = out_at;
    fill(out->bytes, out_at, me, 77);
    OK(VipPostRecv(vi, recv, descriptors->handle));
    barrier();
    OK(VipPostSend(vi, send, descriptors->handle));
    CHECK(received(vi) == recv && recv->CS.Length == 7008);
    static unsigned char received_bytes[7008], right[7008];
    memcpy(received_bytes, in->bytes, 4000);
    memcpy(received_bytes + 4000, in->bytes + 4010, 1);
    memcpy(received_bytes + 4001, in->bytes + 4021, 3007);
    fill(right, sizeof right, other, 77);
    CHECK(memcmp(received_bytes, right, sizeof right) == 0);
    sent(vi);
    barrier();
}

static void use_level(unsigned level, const char *name) {
    memory descriptors = memory_of(64 * 2 * COUNT, 0);
    memory out = memory_of(LONGEST + 64, 0), in = memory_of(LONGEST + 64, 0);
    VIP_VI_HANDLE vi = vi_with(level, NULL, NULL);
    CHECK(state_of(vi) == VIP_STATE_IDLE);
    connect_vi(vi, name);
    CHECK(state_of(vi) == VIP_STATE_CONNECTED);
    exchange_lengths(vi, &descriptors, &out, &in);
    burst(vi, &descriptors, &out, &in);
    gather_and_scatter(vi, &descriptors, &out, &in);
    barrier();
    destroy(vi);
    free_memory(&in);
    free_memory(&out);
    free_memory(&descriptors);
}

int main(void) {
    begin();
    use_level(VIP_SERVICE_RELIABLE_DELIVERY, "delivery");
    use_level(VIP_SERVICE_RELIABLE_RECEPTION, "reception");
    printf("process %u is done\n", me);
    end();
    return 0;
}
