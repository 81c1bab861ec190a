/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the C tests: a check that prints its condition when it fails, connecting VIs, and
 * descriptors. */
#ifndef CHECK_H
#define CHECK_H

#include <vipl.h>

#define LAST_ERROR() VipLastError()
#include "expect.h"

#define OK(call) CHECK((call) == VIP_SUCCESS)

#define FAILS(result, words, call) CHECK((call) == (result) && strstr(VipLastError(), words))

enum { ADDRESS_LEN = 6, PATIENCE = 60000 };

static VIP_NIC_HANDLE nic;
static VIP_PROTECTION_HANDLE ptag;
static unsigned me, other; /* processes: 0 and 1 */

/* An address with room for its bytes. */
typedef union {
    VIP_NET_ADDRESS net;
    unsigned char bytes[4 + ADDRESS_LEN + 64];
} address;

/* The address of a process, with a discriminator. */
static inline address address_of(unsigned process, const char *discriminator) {
    address made;
    memset(&made, 0, sizeof made);
    made.net.HostAddressLen = ADDRESS_LEN;
    made.net.DiscriminatorLen = (unsigned short)strlen(discriminator);
    const unsigned char host[ADDRESS_LEN] = {2, 'P', 'L', 0, (unsigned char)(process >> 8), (unsigned char)process};
    memcpy(made.bytes + 4, host, ADDRESS_LEN);
    memcpy(made.bytes + 4 + ADDRESS_LEN, discriminator, strlen(discriminator));
    return made;
}

/* Memory that is registered completely, with all rights. */
typedef struct {
    unsigned char *bytes;
    size_t len;
    VIP_MEM_HANDLE handle;
} memory;

static inline memory memory_of(size_t len, int open) {
    memory made = {NULL, (len + 63) / 64 * 64, 0};
    CHECK(made.bytes = aligned_alloc(64, made.len));
    memset(made.bytes, 0xa5, made.len);
    VIP_MEM_ATTRIBUTES attributes = {ptag, open, open};
    OK(VipRegisterMem(nic, made.bytes, made.len, &attributes, &made.handle));
    return made;
}

static inline void free_memory(memory *made) {
    OK(VipDeregisterMem(nic, made->bytes, made->handle));
    free(made->bytes);
}

/* Creates a descriptor with one data segment. */
static inline VIP_DESCRIPTOR *describe(memory *descriptors, unsigned index, memory *data, size_t from, size_t len) {
    VIP_DESCRIPTOR *made = (VIP_DESCRIPTOR *)(void *)descriptors->bytes + index;
    memset(made, 0, sizeof *made);
    made->CS.SegCount = 1;
    made->CS.Length = (unsigned)len;
    made->DS[0].Local.Data.Address = data->bytes + from;
    made->DS[0].Local.Handle = data->handle;
    made->DS[0].Local.Length = (unsigned)len;
    return made;
}

/* Creates an RDMA descriptor with one data segment. */
static inline VIP_DESCRIPTOR *describe_rdma(memory *descriptors, unsigned index, memory *data, size_t len,
                                            unsigned op, uint64_t remote, VIP_MEM_HANDLE handle) {
    VIP_DESCRIPTOR *made = describe(descriptors, index, data, 0, len);
    made->CS.SegCount = 2;
    made->CS.Control = (unsigned short)op;
    made->DS[1] = made->DS[0];
    memset(&made->DS[0], 0, sizeof made->DS[0]);
    made->DS[0].Remote.Data.AddressBits = remote;
    made->DS[0].Remote.Handle = handle;
    return made;
}

static inline VIP_VI_ATTRIBUTES attributes_of(unsigned level) {
    VIP_VI_ATTRIBUTES made;
    memset(&made, 0, sizeof made);
    made.ReliabilityLevel = (unsigned short)level;
    made.MaxTransferSize = 1 << 24;
    made.Ptag = ptag;
    made.EnableRdmaWrite = VIP_TRUE;
    made.EnableRdmaRead = level != VIP_SERVICE_UNRELIABLE;
    return made;
}

static inline VIP_VI_HANDLE vi_with(unsigned level, VIP_CQ_HANDLE send_cq, VIP_CQ_HANDLE recv_cq) {
    VIP_VI_ATTRIBUTES attributes = attributes_of(level);
    VIP_VI_HANDLE made;
    OK(VipCreateVi(nic, &attributes, send_cq, recv_cq, &made));
    return made;
}

/* Connects a VI with one of the other process. Process 0 is the server. */
static inline void connect_vi(VIP_VI_HANDLE vi, const char *name) {
    if (me == 0) {
        address local = address_of(0, name), remote;
        VIP_VI_ATTRIBUTES attributes;
        VIP_CONN_HANDLE conn;
        OK(VipConnectWait(nic, &local.net, PATIENCE, &remote.net, &attributes, &conn));
        OK(VipConnectAccept(conn, vi));
        return;
    }
    address local = address_of(1, name), remote = address_of(0, name);
    VIP_RETURN result;
    /* The server may not be waiting yet. */
    do result = VipConnectRequest(vi, &local.net, &remote.net, PATIENCE, NULL);
    while (result == VIP_NO_MATCH);
    OK(result);
}

static inline VIP_DESCRIPTOR *sent(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done = NULL;
    OK(VipSendWait(vi, PATIENCE, &done));
    return done;
}

static inline VIP_DESCRIPTOR *received(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done = NULL;
    OK(VipRecvWait(vi, PATIENCE, &done));
    return done;
}

static inline VIP_VI_STATE state_of(VIP_VI_HANDLE vi) {
    VIP_VI_STATE state;
    OK(VipQueryVi(vi, &state, NULL, NULL, NULL));
    return state;
}

/* Takes all descriptors from both queues of a VI that is not connected, and destroys it. */
static inline void destroy(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done;
    OK(VipDisconnect(vi));
    do VipSendDone(vi, &done);
    while (done);
    do VipRecvDone(vi, &done);
    while (done);
    OK(VipDestroyVi(vi));
}

/* Barrier of both processes. */
static VIP_VI_HANDLE barrier_vi;
static memory barrier_descriptors;

static inline void await_word(void) {
    VIP_DESCRIPTOR *descriptor = received(barrier_vi);
    OK(VipPostRecv(barrier_vi, descriptor, barrier_descriptors.handle));
}

static inline void say_word(void) {
    VIP_DESCRIPTOR *descriptor = (VIP_DESCRIPTOR *)(void *)barrier_descriptors.bytes;
    memset(descriptor, 0, sizeof *descriptor);
    OK(VipPostSend(barrier_vi, descriptor, barrier_descriptors.handle));
    sent(barrier_vi);
}

static inline void barrier(void) {
    if (me == 0) {
        say_word();
        await_word();
    } else {
        await_word();
        say_word();
    }
}

static inline void open_nic(void) {
    OK(VipOpenNic("VINIC", &nic));
    OK(VipCreatePtag(nic, &ptag));
    VIP_NIC_ATTRIBUTES attributes;
    OK(VipQueryNic(nic, &attributes));
    me = attributes.LocalNicAddress[5];
    other = 1 - me;
}

static inline void begin(void) {
    open_nic();
    barrier_descriptors = memory_of(3 * 64, 0);
    barrier_vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    VIP_DESCRIPTOR *descriptors = (VIP_DESCRIPTOR *)(void *)barrier_descriptors.bytes;
    for (int i = 1; i < 3; i++) {
        memset(&descriptors[i], 0, sizeof *descriptors);
        OK(VipPostRecv(barrier_vi, &descriptors[i], barrier_descriptors.handle));
    }
    connect_vi(barrier_vi, "barrier");
    barrier();
}

static inline void end(void) {
    barrier();
    destroy(barrier_vi);
    free_memory(&barrier_descriptors);
    OK(VipDestroyPtag(nic, ptag));
    OK(VipCloseNic(nic));
}

static inline void fill(unsigned char *bytes, size_t len, unsigned process, unsigned number) {
    for (size_t i = 0; i < len; i++) bytes[i] = (unsigned char)(process * 31 + number * 7 + i / 3);
}

static inline int is_filled(const unsigned char *bytes, size_t len, unsigned process, unsigned number) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (unsigned char)(process * 31 + number * 7 + i / 3)) return 0;
    return 1;
}

#endif
