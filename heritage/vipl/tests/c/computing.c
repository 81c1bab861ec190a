/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* With progress=thread, a process that makes no call serves RDMA writes and reads. The peer reports
 * by a file, named by the argument, that all of them are complete. */

#include "check.h"

#include <unistd.h>

enum { WRITES = 10000, LONG_LEN = 20000, SLOT = 8, SPAN = WRITES * SLOT, EACH_LONG = 1000 };

static memory descriptors, local, shared;
static VIP_VI_HANDLE vi;

/* Writes a number to each slot, some longer data behind the slots, and reads both back. */
static void use_remote(uint64_t where, VIP_MEM_HANDLE handle) {
    for (unsigned i = 0; i < WRITES; i++) {
        uint64_t number = i * 3;
        memcpy(local.bytes, &number, SLOT);
        OK(VipPostSend(vi, describe_rdma(&descriptors, 0, &local, SLOT, VIP_CONTROL_OP_RDMAWRITE, where + i * SLOT, handle),
                       descriptors.handle));
        CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
        if (i % EACH_LONG != 0) continue;
        fill(local.bytes, LONG_LEN, 1, i);
        OK(VipPostSend(vi, describe_rdma(&descriptors, 0, &local, LONG_LEN, VIP_CONTROL_OP_RDMAWRITE, where + SPAN, handle),
                       descriptors.handle));
        CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
        memset(local.bytes, 0, LONG_LEN);
        OK(VipPostSend(vi, describe_rdma(&descriptors, 0, &local, LONG_LEN, VIP_CONTROL_OP_RDMAREAD, where + SPAN, handle),
                       descriptors.handle));
        CHECK(sent(vi)->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
        CHECK(is_filled(local.bytes, LONG_LEN, 1, i));
    }
}

static void check_memory(void) {
    for (unsigned i = 0; i < WRITES; i++) {
        uint64_t number;
        memcpy(&number, shared.bytes + i * SLOT, SLOT);
        CHECK(number == i * 3);
    }
    CHECK(is_filled(shared.bytes + SPAN, LONG_LEN, 1, WRITES - EACH_LONG));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    begin();
    descriptors = memory_of(64 * 8, 0);
    local = memory_of(LONG_LEN, 0);
    shared = memory_of(SPAN + LONG_LEN, 1);
    vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    if (me == 1) OK(VipPostRecv(vi, describe(&descriptors, 0, &local, 0, 64), descriptors.handle));
    connect_vi(vi, "computing");
    if (me == 0) {
        uint64_t at = (uintptr_t)shared.bytes;
        memcpy(local.bytes, &at, sizeof at);
        memcpy(local.bytes + sizeof at, &shared.handle, sizeof shared.handle);
        OK(VipPostSend(vi, describe(&descriptors, 0, &local, 0, 12), descriptors.handle));
        sent(vi);
        /* No call from here on. */
        while (access(argv[1], F_OK) != 0) usleep(1000);
        check_memory();
    } else {
        uint64_t where;
        VIP_MEM_HANDLE handle;
        received(vi);
        memcpy(&where, local.bytes, sizeof where);
        memcpy(&handle, local.bytes + sizeof where, sizeof handle);
        use_remote(where, handle);
        FILE *file = fopen(argv[1], "w");
        CHECK(file && fclose(file) == 0);
    }
    barrier();
    destroy(vi);
    printf("process %u is done\n", me);
    free_memory(&shared);
    free_memory(&local);
    free_memory(&descriptors);
    end();
    return 0;
}
