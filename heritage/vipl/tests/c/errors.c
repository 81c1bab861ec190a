/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Errors of descriptors, at each level. Process 1 sends, process 0 receives. */

#include "errors.h"

static const unsigned levels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION};

static memory descriptors, data, closed;
static VIP_VI_HANDLE vi;
static unsigned level;

static void open_vi(const char *name) {
    vi = vi_with(level, NULL, NULL);
    connect_vi(vi, name);
    barrier();
}

static void close_vi(void) {
    int is_connected = state_of(vi) == VIP_STATE_CONNECTED;
    barrier();
    if (me == 0) destroy(vi);
    barrier();
    if (me == 1) {
        /* The other side has disconnected first. */
        if (is_connected) await_error(VIP_ERROR_CONN_LOST, vi);
        destroy(vi);
    }
    CHECK(is_quiet());
    barrier();
}

static void post_send(VIP_DESCRIPTOR *send) { OK(VipPostSend(vi, send, descriptors.handle)); }
static void post_recv(VIP_DESCRIPTOR *recv) { OK(VipPostRecv(vi, recv, descriptors.handle)); }

/* Checks the result of a send whose receiver cannot accept it, and the state of the sender's VI. */
static void check_sender(unsigned status) {
    if (level == VIP_SERVICE_UNRELIABLE) {
        sent(vi);
        CHECK(state_of(vi) == VIP_STATE_CONNECTED);
        return;
    }
    if (level == VIP_SERVICE_RELIABLE_DELIVERY)
        sent(vi);
    else
        CHECK(failed_send(vi) == status);
    await_state(vi, VIP_STATE_ERROR);
    await_error(VIP_ERROR_CONN_LOST, vi);
    /* From now on all descriptors are flushed. */
    post_send(describe(&descriptors, 5, &data, 0, 8));
    CHECK(failed_send(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    post_recv(describe(&descriptors, 6, &data, 0, 8));
    CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    OK(VipDisconnect(vi));
    CHECK(state_of(vi) == VIP_STATE_IDLE);
}

static void check_receiver(void) {
    await_state(vi, level == VIP_SERVICE_UNRELIABLE ? VIP_STATE_CONNECTED : VIP_STATE_ERROR);
}

static void no_receive(void) {
    open_vi("no receive");
    if (me == 1) {
        post_send(describe(&descriptors, 0, &data, 0, 8));
        check_sender(VIP_STATUS_REMOTE_DESC_ERROR);
    } else {
        await_error(VIP_ERROR_RECVQ_EMPTY, vi);
        check_receiver();
    }
    close_vi();
}

static void too_long(void) {
    open_vi("too long");
    if (me == 0) {
        post_recv(describe(&descriptors, 0, &data, 0, 4));
        post_recv(describe(&descriptors, 1, &data, 0, 64));
    }
    barrier();
    if (me == 1) {
        post_send(describe(&descriptors, 0, &data, 0, 8));
        check_sender(VIP_STATUS_REMOTE_DESC_ERROR);
    } else {
        CHECK(failed_recv(vi) == VIP_STATUS_LENGTH_ERROR);
        check_receiver();
        if (level != VIP_SERVICE_UNRELIABLE) CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    close_vi();
}

/* The receiver's descriptor is invalid: memory with another protection tag, or not a receive. */
static void bad_receive(unsigned expected) {
    open_vi("bad receive");
    if (me == 0) {
        VIP_DESCRIPTOR *recv = describe(&descriptors, 0, &data, 0, 64);
        if (expected == VIP_STATUS_PROTECTION_ERROR)
            recv->DS[0].Local.Handle = closed.handle;
        else
            recv->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
        post_recv(recv);
    }
    barrier();
    if (me == 1) {
        post_send(describe(&descriptors, 0, &data, 0, 8));
        check_sender(VIP_STATUS_REMOTE_DESC_ERROR);
    } else {
        CHECK(failed_recv(vi) == expected);
        check_receiver();
    }
    close_vi();
}

/* The descriptor of a send is invalid; a valid one follows. */
static void bad_send(unsigned which, unsigned expected) {
    open_vi("bad send");
    if (me == 0) {
        post_recv(describe(&descriptors, 0, &data, 0, 64));
        barrier();
        if (level == VIP_SERVICE_UNRELIABLE)
            CHECK(received(vi)->CS.Length == 9);
        else
            CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
        check_receiver();
        if (level != VIP_SERVICE_UNRELIABLE) await_error(VIP_ERROR_CONN_LOST, vi);
    } else {
        barrier();
        VIP_DESCRIPTOR *send = describe(&descriptors, 0, &data, 0, 8);
        switch (which) {
        case 0: send->DS[0].Local.Handle = closed.handle; break;
        case 1: send->DS[0].Local.Data.Address = data.bytes + data.len - 4; break;
        case 2: send->DS[0].Local.Handle = 0; break;
        case 3: send->CS.Length = 9; break;
        case 4: send->CS.Length = send->DS[0].Local.Length = (1 << 24) + 1; break;
        case 5: send->CS.Control = VIP_CONTROL_OP_MASK; break;
        case 6: send->CS.SegCount = 0, send->CS.Control = VIP_CONTROL_OP_RDMAWRITE; break;
        case 7: send->CS.SegCount = 65; break;
        default: send->CS.Control = VIP_CONTROL_OP_RDMAREAD; break;
        }
        post_send(send);
        CHECK(failed_send(vi) == expected);
        post_send(describe(&descriptors, 1, &data, 0, 9));
        if (level == VIP_SERVICE_UNRELIABLE)
            sent(vi);
        else
            CHECK(failed_send(vi) == VIP_STATUS_DESC_FLUSHED_ERROR && state_of(vi) == VIP_STATE_ERROR);
    }
    close_vi();
}

/* Memory without permission. Process 0 sends its address. */
static void bad_rdma(unsigned op, int which) {
    open_vi("bad rdma");
    static memory target;
    static unsigned char *at;
    uint64_t where = 0;
    VIP_MEM_HANDLE handle = 0;
    if (me == 0) {
        target = memory_of(128, which == 1);
        at = target.bytes;
        memcpy(data.bytes, &at, sizeof at);
        memcpy(data.bytes + sizeof at, &target.handle, sizeof target.handle);
        VIP_DESCRIPTOR *word = describe(&descriptors, 0, &data, 0, 16);
        post_recv(describe(&descriptors, 1, &data, 64, 64));
        barrier();
        OK(VipPostSend(vi, word, descriptors.handle));
        sent(vi);
    } else {
        post_recv(describe(&descriptors, 0, &data, 0, 64));
        barrier();
        received(vi);
        memcpy(&where, data.bytes, sizeof where);
        memcpy(&handle, data.bytes + sizeof where, sizeof handle);
    }
    if (me == 0) {
        await_error(op == VIP_CONTROL_OP_RDMAWRITE ? VIP_ERROR_RDMAW_PROT : VIP_ERROR_RDMAR_PROT, vi);
        check_receiver();
        for (size_t i = 0; i < target.len; i++) CHECK(target.bytes[i] == 0xa5);
        barrier();
        OK(VipDeregisterMem(nic, target.bytes, target.handle));
        free(target.bytes);
    } else {
        /* Beyond the end of the memory, if access is permitted at all. */
        post_send(describe_rdma(&descriptors, 3, &data, 129, op, where, which == 2 ? 0 : handle));
        if (op == VIP_CONTROL_OP_RDMAREAD) {
            CHECK(failed_send(vi) == VIP_STATUS_RDMA_PROT_ERROR);
            await_error(VIP_ERROR_CONN_LOST, vi);
        } else {
            check_sender(VIP_STATUS_RDMA_PROT_ERROR);
        }
        barrier();
    }
    close_vi();
}

/* One side ends the connection. */
static void disconnected(void) {
    open_vi("disconnected");
    post_recv(describe(&descriptors, 0, &data, 0, 64));
    post_recv(describe(&descriptors, 1, &data, 0, 64));
    barrier();
    if (me == 1) {
        OK(VipDisconnect(vi));
        CHECK(state_of(vi) == VIP_STATE_IDLE);
        CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
        CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
        post_send(describe(&descriptors, 2, &data, 0, 8));
        CHECK(failed_send(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    } else {
        await_error(VIP_ERROR_CONN_LOST, vi);
        CHECK(state_of(vi) == VIP_STATE_ERROR);
        CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
        CHECK(failed_recv(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
        OK(VipDisconnect(vi));
        CHECK(state_of(vi) == VIP_STATE_IDLE);
    }
    barrier();
    /* Both may be connected again. Receives that were posted before wait for the new connection. */
    post_recv(describe(&descriptors, 0, &data, 0, 64));
    connect_vi(vi, "again");
    post_send(describe(&descriptors, 1, &data, 0, 8));
    CHECK(received(vi)->CS.Length == 8);
    sent(vi);
    close_vi();
}

static void misplaced(void) {
    open_vi("misplaced");
    VIP_DESCRIPTOR *send = describe(&descriptors, 0, &data, 0, 8);
    FAILS(VIP_INVALID_PARAMETER, "not in memory", VipPostSend(vi, send, data.handle));
    await_error(VIP_ERROR_POST_DESC, vi);
    CHECK(last_of[VIP_ERROR_POST_DESC].DescriptorPtr == send);
    CHECK(last_of[VIP_ERROR_POST_DESC].ResourceCode == VIP_RESOURCE_DESCRIPTOR);
    FAILS(VIP_INVALID_PARAMETER, "not in memory", VipPostRecv(vi, send, closed.handle));
    await_error(VIP_ERROR_POST_DESC, vi);
    CHECK(state_of(vi) == VIP_STATE_CONNECTED);
    close_vi();
}

int main(int argc, char **argv) {
    begin();
    watch_errors();
    descriptors = memory_of(64 * 32, 0); /* room for 65 segments */
    data = memory_of(256, 0);
    VIP_PROTECTION_HANDLE own = ptag, another;
    OK(VipCreatePtag(nic, &another));
    ptag = another;
    closed = memory_of(256, 1);
    ptag = own;
    /* On a lossy network, unreliable VIs may not see these errors. */
    for (unsigned i = argc > 1 && strcmp(argv[1], "lossy") == 0; i < 3; i++) {
        level = levels[i];
        no_receive();
        too_long();
        bad_receive(VIP_STATUS_PROTECTION_ERROR);
        bad_receive(VIP_STATUS_FORMAT_ERROR);
        for (unsigned which = 0; which < 3; which++) bad_send(which, VIP_STATUS_PROTECTION_ERROR);
        for (unsigned which = 3; which < 5; which++) bad_send(which, VIP_STATUS_LENGTH_ERROR);
        for (unsigned which = 5; which < 8; which++) bad_send(which, VIP_STATUS_FORMAT_ERROR);
        if (level == VIP_SERVICE_UNRELIABLE) bad_send(8, VIP_STATUS_FORMAT_ERROR);
        for (int which = 0; which < 3; which++) {
            bad_rdma(VIP_CONTROL_OP_RDMAWRITE, which);
            if (level != VIP_SERVICE_UNRELIABLE) bad_rdma(VIP_CONTROL_OP_RDMAREAD, which);
        }
        disconnected();
        misplaced();
    }
    barrier();
    printf("process %u is done\n", me);
    free_memory(&closed);
    free_memory(&data);
    free_memory(&descriptors);
    OK(VipDestroyPtag(nic, another));
    end();
    return 0;
}
