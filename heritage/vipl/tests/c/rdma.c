/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* RDMA: process 1 writes to the memory of process 0, and reads it. */

#include "check.h"

enum { SPAN = 200000 };

static const unsigned lengths[] = {0, 1, 64, 4096, 4097, 20000, SPAN};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static memory descriptors, local, shared;
static VIP_VI_HANDLE vi;

/* Process 0 sends the address of its memory. */
static void tell(uint64_t *where, VIP_MEM_HANDLE *handle) {
    if (me == 0) {
        uint64_t at = (uintptr_t)shared.bytes;
        memcpy(local.bytes, &at, 8);
        memcpy(local.bytes + 8, &shared.handle, 4);
        OK(VipPostSend(vi, describe(&descriptors, 0, &local, 0, 12), descriptors.handle));
        sent(vi);
    } else {
        received(vi);
        memcpy(where, local.bytes, 8);
        memcpy(handle, local.bytes + 8, 4);
    }
}

/* A write, then a message: when the message has arrived, so has the data. */
static void write_it(uint64_t where, VIP_MEM_HANDLE handle) {
    for (unsigned i = 0; i < LENGTHS; i++) {
        unsigned len = lengths[i];
        if (me == 0) {
            memset(shared.bytes, 0xa5, shared.len);
            OK(VipPostRecv(vi, describe(&descriptors, 0, &local, 0, 8), descriptors.handle));
            barrier();
            CHECK(received(vi)->CS.Length == 5);
            CHECK(is_filled(shared.bytes + 8, len, 1, i) && shared.bytes[7] == 0xa5 && shared.bytes[8 + len] == 0xa5);
            OK(VipPostRecv(vi, describe(&descriptors, 0, &local, 0, 0), descriptors.handle));
            barrier();
            /* A write with immediate data consumes a receive, whose memory is not changed. */
            VIP_DESCRIPTOR *done = received(vi);
            CHECK(done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE));
            CHECK(done->CS.ImmediateData == 4711 + i && done->CS.Length == len);
            CHECK(is_filled(shared.bytes + 8, len, 1, i + 50));
        } else {
            barrier();
            fill(local.bytes, len, 1, i);
            OK(VipPostSend(vi, describe_rdma(&descriptors, 0, &local, len, VIP_CONTROL_OP_RDMAWRITE, where + 8, handle),
                           descriptors.handle));
            OK(VipPostSend(vi, describe(&descriptors, 2, &local, 0, 5), descriptors.handle));
            CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
            sent(vi);
            barrier();
            fill(local.bytes, len, 1, i + 50);
            VIP_DESCRIPTOR *write =
                describe_rdma(&descriptors, 0, &local, len, VIP_CONTROL_OP_RDMAWRITE, where + 8, handle);
            write->CS.Control |= VIP_CONTROL_IMMEDIATE;
            write->CS.ImmediateData = 4711 + i;
            OK(VipPostSend(vi, write, descriptors.handle));
            sent(vi);
        }
        barrier();
    }
}

/* Reads of all lengths. A fence delays later descriptors. */
static void read_it(uint64_t where, VIP_MEM_HANDLE handle) {
    for (unsigned i = 0; i < LENGTHS; i++) {
        unsigned len = lengths[i];
        if (me == 0) {
            fill(shared.bytes + 16, len, 0, i);
            barrier();
        } else {
            barrier();
            memset(local.bytes, 0xa5, local.len);
            OK(VipPostSend(vi,
                           describe_rdma(&descriptors, 0, &local, len, VIP_CONTROL_OP_RDMAREAD, where + 16, handle),
                           descriptors.handle));
            VIP_DESCRIPTOR *fenced =
                describe_rdma(&descriptors, 2, &local, len, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_QFENCE, where, handle);
            OK(VipPostSend(vi, fenced, descriptors.handle));
            CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
            CHECK(is_filled(local.bytes, len, 0, i) && local.bytes[len] == 0xa5);
            CHECK(sent(vi) == fenced);
        }
        barrier();
        /* The fenced write carries the data that the read has fetched. */
        if (me == 0) CHECK(is_filled(shared.bytes, len, 0, i));
        barrier();
    }
}

static void use_level(unsigned level) {
    uint64_t where = 0;
    VIP_MEM_HANDLE handle = 0;
    vi = vi_with(level, NULL, NULL);
    if (me == 1) OK(VipPostRecv(vi, describe(&descriptors, 0, &local, 0, 64), descriptors.handle));
    connect_vi(vi, "rdma");
    tell(&where, &handle);
    write_it(where, handle);
    if (level != VIP_SERVICE_UNRELIABLE) read_it(where, handle);
    barrier();
    destroy(vi);
}

int main(void) {
    begin();
    descriptors = memory_of(64 * 8, 0);
    local = memory_of(SPAN + 64, 0);
    shared = memory_of(SPAN + 64, 1);
    use_level(VIP_SERVICE_RELIABLE_DELIVERY);
    use_level(VIP_SERVICE_RELIABLE_RECEPTION);
    printf("process %u is done\n", me);
    free_memory(&shared);
    free_memory(&local);
    free_memory(&descriptors);
    end();
    return 0;
}
