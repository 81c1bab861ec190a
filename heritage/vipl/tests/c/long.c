/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Long messages and RDMA transfers move from memory to memory. They complete in order between short
 * ones, and their descriptors complete when a connection ends. */

#include "check.h"

enum { COUNT = 24, SLOT = 70000, SPAN = COUNT * SLOT, RDMA_LEN = 50000, OVERLAP = 1000, ROUNDS = 8 };

static memory descriptors, out, in;
static uint64_t where[2]; /* address and handle of `in` at the other process */

static size_t len_of(unsigned i) { return i % 3 == 1 ? 100 + i : 16384 + i * 2111; }

static VIP_DESCRIPTOR *descriptor(unsigned index) { return (VIP_DESCRIPTOR *)(void *)(descriptors.bytes + index * 128); }

/* Describes a receive in two segments, one after the other. */
static VIP_DESCRIPTOR *describe_two(unsigned index, size_t from, size_t first) {
    VIP_DESCRIPTOR *made = describe(&descriptors, 2 * index, &in, from, first);
    made->CS.SegCount = 2;
    made->DS[1].Local = made->DS[0].Local;
    made->DS[1].Local.Data.Address = in.bytes + from + first;
    made->DS[1].Local.Length = (unsigned)(SLOT - first);
    made->CS.Length = SLOT;
    return made;
}

/* All messages are posted at once, in both directions. */
static void mixed(VIP_VI_HANDLE vi) {
    memset(in.bytes, 0xa5, in.len);
    for (unsigned i = 0; i < COUNT; i++) {
        VIP_DESCRIPTOR *recv = i % 4 == 2 ? describe_two(i, i * SLOT, 9000 + i)
                                          : describe(&descriptors, 2 * i, &in, i * SLOT, SLOT);
        OK(VipPostRecv(vi, recv, descriptors.handle));
    }
    barrier();
    for (unsigned i = 0; i < COUNT; i++) {
        fill(out.bytes + i * SLOT, len_of(i), me, i);
        VIP_DESCRIPTOR *send = describe(&descriptors, 2 * (COUNT + i), &out, i * SLOT, len_of(i));
        send->CS.Control = VIP_CONTROL_IMMEDIATE;
        send->CS.ImmediateData = i;
        OK(VipPostSend(vi, send, descriptors.handle));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        VIP_DESCRIPTOR *recv = received(vi);
        CHECK(recv == descriptor(i) && recv->CS.Length == len_of(i) && recv->CS.ImmediateData == i);
        CHECK(is_filled(in.bytes + i * SLOT, len_of(i), other, i) && in.bytes[i * SLOT + len_of(i)] == 0xa5);
        CHECK(sent(vi) == descriptor(COUNT + i));
    }
    barrier();
}

/* Writes to overlapping memory are made in order, before the message that follows them. */
static void writes(VIP_VI_HANDLE vi) {
    const uint64_t own[2] = {(uintptr_t)in.bytes, in.handle};
    OK(VipPostRecv(vi, describe(&descriptors, 0, &in, SPAN - 64, 64), descriptors.handle));
    barrier();
    memcpy(out.bytes, own, sizeof own);
    OK(VipPostSend(vi, describe(&descriptors, 2, &out, 0, sizeof own), descriptors.handle));
    received(vi);
    sent(vi);
    memcpy(where, in.bytes + SPAN - 64, sizeof where);
    OK(VipPostRecv(vi, describe(&descriptors, 0, &in, SPAN - 64, 64), descriptors.handle));
    barrier();
    for (unsigned i = 0; i < ROUNDS; i++) {
        memory part = {out.bytes + i * SLOT, SLOT, out.handle};
        fill(part.bytes, RDMA_LEN, me, i);
        OK(VipPostSend(vi,
                       describe_rdma(&descriptors, 4 + 2 * i, &part, RDMA_LEN, VIP_CONTROL_OP_RDMAWRITE,
                                     where[0] + i * OVERLAP, (VIP_MEM_HANDLE)where[1]),
                       descriptors.handle));
    }
    OK(VipPostSend(vi, describe(&descriptors, 2, &out, 0, 8), descriptors.handle));
    received(vi);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned len = i + 1 < ROUNDS ? OVERLAP : RDMA_LEN;
        CHECK(is_filled(in.bytes + i * OVERLAP, len, other, i));
        CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
    }
    sent(vi);
    barrier();
}

/* A receive that is too short fails on both sides. */
static void too_short(VIP_VI_HANDLE vi) {
    if (me == 0) OK(VipPostRecv(vi, describe(&descriptors, 0, &in, 0, 20000), descriptors.handle));
    barrier();
    VIP_DESCRIPTOR *done = NULL;
    if (me == 0) {
        CHECK(VipRecvWait(vi, PATIENCE, &done) == VIP_DESCRIPTOR_ERROR && done);
        CHECK(done->CS.Status & VIP_STATUS_LENGTH_ERROR);
    } else {
        OK(VipPostSend(vi, describe(&descriptors, 2, &out, 0, 20001), descriptors.handle));
        CHECK(VipSendWait(vi, PATIENCE, &done) == VIP_DESCRIPTOR_ERROR && done);
        CHECK(done->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR);
    }
    barrier();
}

/* The receiver, or the sender, ends the connection while long messages are in flight. All
 * descriptors complete, with or without an error, and their memory can be freed. */
static void cut_short(unsigned cutter) {
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    memory own = memory_of(4 * SLOT, 0);
    connect_vi(vi, "cut");
    if (me == 0)
        for (unsigned i = 0; i < 4; i++)
            OK(VipPostRecv(vi, describe(&descriptors, 2 * i, &own, i * SLOT, SLOT), descriptors.handle));
    barrier();
    if (me == 1)
        for (unsigned i = 0; i < 4; i++)
            OK(VipPostSend(vi, describe(&descriptors, 2 * i, &own, i * SLOT, SLOT), descriptors.handle));
    if (me == cutter) OK(VipDisconnect(vi));
    for (unsigned i = 0; i < 4; i++) {
        VIP_DESCRIPTOR *done = NULL;
        VIP_RETURN result = me == 1 ? VipSendWait(vi, PATIENCE, &done) : VipRecvWait(vi, PATIENCE, &done);
        CHECK((result == VIP_SUCCESS || result == VIP_DESCRIPTOR_ERROR) && done == descriptor(i));
    }
    free_memory(&own);
    destroy(vi);
    barrier();
}

static void post_read(VIP_VI_HANDLE vi, unsigned i) {
    memory part = {out.bytes + i * SLOT, SLOT, out.handle};
    OK(VipPostSend(vi,
                   describe_rdma(&descriptors, 2 * i, &part, SLOT, VIP_CONTROL_OP_RDMAREAD, where[0] + i * SLOT,
                                 (VIP_MEM_HANDLE)where[1]),
                   descriptors.handle));
}

/* The reader, or the process that is read, ends the connection. The next reads of both processes,
 * in part with the same numbers, get their data. */
static void read_cut_short(unsigned cutter) {
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    connect_vi(vi, "cut");
    barrier();
    if (me == 0)
        for (unsigned i = 0; i < 4; i++) post_read(vi, i);
    if (me == cutter) OK(VipDisconnect(vi));
    if (me == 0)
        for (unsigned i = 0; i < 4; i++) {
            VIP_DESCRIPTOR *done = NULL;
            VIP_RETURN result = VipSendWait(vi, PATIENCE, &done);
            CHECK((result == VIP_SUCCESS || result == VIP_DESCRIPTOR_ERROR) && done == descriptor(i));
        }
    destroy(vi);
    barrier();
    vi = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    connect_vi(vi, "next");
    for (unsigned i = 0; i < 4; i++) fill(in.bytes + i * SLOT, SLOT, me, i);
    barrier();
    for (unsigned i = 0; i < 4; i++) post_read(vi, i);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
        CHECK(is_filled(out.bytes + i * SLOT, SLOT, other, i));
    }
    barrier();
    destroy(vi);
}

int main(void) {
    begin();
    descriptors = memory_of(64 * 4 * COUNT, 0);
    out = memory_of(SPAN + 64, 0);
    in = memory_of(SPAN + 64, 1);
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    connect_vi(vi, "long");
    mixed(vi);
    writes(vi);
    mixed(vi);
    too_short(vi);
    destroy(vi);
    for (unsigned round = 0; round < 6; round++) cut_short(round % 2);
    for (unsigned round = 0; round < 6; round++) read_cut_short(round % 2);
    printf("process %u is done\n", me);
    free_memory(&in);
    free_memory(&out);
    free_memory(&descriptors);
    end();
    return 0;
}
