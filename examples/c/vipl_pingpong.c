/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measures half round trips between two processes, by sends and by RDMA writes with immediate data:
 *
 *   portolan run -n 2 -- vipl_pingpong [TRIALS [BYTES]]
 *
 * With BYTES, measures only sends of that length, like examples/c/pingpong.c. */

#include <vipl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIALS = 1000, WARM_UP = 20, AHEAD = 4, LEN_LAST = 1 << 16, LEN_MAX = 1 << 22, HOST_LEN = 6 };

/* An address with one byte of discriminator. */
typedef union {
    VIP_NET_ADDRESS net;
    unsigned char bytes[4 + HOST_LEN + 1];
} address;

/* Contents of the registered memory. */
typedef struct {
    VIP_DESCRIPTOR send, recv[AHEAD];
    unsigned char out[LEN_MAX], in[LEN_MAX];
} area;

/* Memory of the peer, as needed for RDMA writes. */
typedef struct {
    uint64_t in;
    VIP_MEM_HANDLE handle;
} target;

static VIP_NIC_HANDLE nic;
static VIP_VI_HANDLE vi;
static VIP_MEM_HANDLE handle;
static area *own;
static target theirs;
static unsigned me;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void must(VIP_RETURN result, const char *what) {
    if (result == VIP_SUCCESS) return;
    fprintf(stderr, "vipl_pingpong: %s: %d: %s\n", what, result, VipLastError());
    exit(1);
}

static address address_of(unsigned rank) {
    address made = {.bytes = {0}};
    made.net.HostAddressLen = HOST_LEN;
    made.net.DiscriminatorLen = 1;
    memcpy(made.bytes + 4, (unsigned char[]){2, 'P', 'L', 0, 0, (unsigned char)rank, 'p'}, HOST_LEN + 1);
    return made;
}

static void fill(VIP_DESCRIPTOR *descriptor, void *at, size_t len) {
    memset(descriptor, 0, sizeof *descriptor);
    descriptor->CS.SegCount = 1;
    descriptor->CS.Length = (unsigned)len;
    descriptor->DS[0].Local.Data.Address = at;
    descriptor->DS[0].Local.Handle = handle;
    descriptor->DS[0].Local.Length = (unsigned)len;
}

static void post_recv(VIP_DESCRIPTOR *descriptor) { must(VipPostRecv(vi, descriptor, handle), "a receive"); }

/* Waits for a message; the caller must post its descriptor again. */
static VIP_DESCRIPTOR *take(void) {
    VIP_DESCRIPTOR *done;
    VIP_RETURN result;
    do result = VipRecvDone(vi, &done);
    while (result == VIP_NOT_DONE);
    must(result, "a message");
    return done;
}

static void post(void) { must(VipPostSend(vi, &own->send, handle), "a send"); }

static void end_send(void) {
    VIP_DESCRIPTOR *done;
    VIP_RETURN result;
    do result = VipSendDone(vi, &done);
    while (result == VIP_NOT_DONE);
    must(result, "a send");
}

/* Prepares the send descriptor for `len` bytes. */
static void prepare(size_t len, int by_rdma) {
    fill(&own->send, own->out, len);
    if (!by_rdma) return;
    own->send.DS[1] = own->send.DS[0];
    own->send.DS[0].Remote = (VIP_ADDRESS_SEGMENT){{theirs.in}, theirs.handle, 0};
    own->send.CS.SegCount = 2;
    own->send.CS.Control = VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE;
}

/* Returns half a round trip in microseconds. */
static double half(size_t len, long trials, int by_rdma) {
    double begin = 0;
    prepare(len, by_rdma);
    for (long i = -WARM_UP; i < trials; i++) {
        if (i == 0) begin = now();
        if (me == 0) post();
        VIP_DESCRIPTOR *done = take();
        if (me == 1) post();
        post_recv(done);
        end_send();
    }
    return (now() - begin) / (double)trials / 2;
}

static void begin(void) {
    VIP_PROTECTION_HANDLE ptag;
    must(VipOpenNic("VINIC", &nic), "VipOpenNic");
    must(VipCreatePtag(nic, &ptag), "VipCreatePtag");
    own = aligned_alloc(64, sizeof *own);
    if (!own) exit(2);
    memset(own, 0, sizeof *own);
    VIP_MEM_ATTRIBUTES memory = {ptag, VIP_TRUE, VIP_FALSE};
    must(VipRegisterMem(nic, own, sizeof *own, &memory, &handle), "VipRegisterMem");
    VIP_VI_ATTRIBUTES attributes = {VIP_SERVICE_RELIABLE_DELIVERY, LEN_MAX, NULL, ptag, VIP_TRUE, VIP_FALSE};
    must(VipCreateVi(nic, &attributes, NULL, NULL, &vi), "VipCreateVi");
    for (int i = 0; i < AHEAD; i++) {
        fill(&own->recv[i], own->in, LEN_MAX);
        post_recv(&own->recv[i]);
    }
    VIP_NIC_ATTRIBUTES about;
    must(VipQueryNic(nic, &about), "VipQueryNic");
    me = about.LocalNicAddress[HOST_LEN - 1];
    address server = address_of(0), local = address_of(me);
    if (me == 0) {
        VIP_CONN_HANDLE conn;
        must(VipConnectWait(nic, &server.net, VIP_INFINITE, NULL, NULL, &conn), "VipConnectWait");
        must(VipConnectAccept(conn, vi), "VipConnectAccept");
        return;
    }
    VIP_RETURN result;
    do result = VipConnectRequest(vi, &local.net, &server.net, VIP_INFINITE, NULL);
    while (result == VIP_NO_MATCH);
    must(result, "VipConnectRequest");
}

/* Sends the address of this process's memory to the peer. */
static void tell(void) {
    target mine = {(uintptr_t)own->in, handle};
    memcpy(own->out, &mine, sizeof mine);
    prepare(sizeof mine, 0);
    if (me == 0) post();
    post_recv(take());
    memcpy(&theirs, own->in, sizeof theirs);
    if (me == 1) post();
    end_send();
}

int main(int argc, char **argv) {
    long trials = argc > 1 ? strtol(argv[1], NULL, 10) : TRIALS;
    long bytes = argc > 2 ? strtol(argv[2], NULL, 10) : -1;
    if (trials < 1 || bytes > LEN_MAX) {
        fputs("vipl_pingpong: at least one trial, and BYTES up to 4 MiB\n", stderr);
        return 2;
    }
    begin();
    tell();
    if (bytes >= 0) {
        double us = half((size_t)bytes, trials, 0);
        if (me == 0) printf("%ld bytes: %.3f µs\n", bytes, us);
    }
    for (size_t len = 1; bytes < 0 && len <= LEN_LAST; len *= 4) {
        double sent = half(len, trials, 0), written = half(len, trials, 1);
        if (me == 0) printf("%8zu bytes: %.3f µs by sends, %.3f µs by RDMA writes\n", len, sent, written);
    }
    VipDisconnect(vi);
    VipCloseNic(nic);
    free(own);
    return 0;
}
