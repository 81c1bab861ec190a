/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Successful and failed connections, of clients with servers and of peers. */

#include "errors.h"

static address here(const char *name) { return address_of(me, name); }
static address there(const char *name) { return address_of(other, name); }

/* No server waits; no server replies; the server rejects; the VIs differ. */
static void refused(void) {
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    VIP_VI_ATTRIBUTES attributes;
    address local = here("refused"), remote = there("refused");
    VIP_CONN_HANDLE conn;
    if (me == 1) {
        FAILS(VIP_NO_MATCH, "no process waits", VipConnectRequest(vi, &local.net, &remote.net, PATIENCE, NULL));
        CHECK(state_of(vi) == VIP_STATE_IDLE);
        barrier();
        VIP_RETURN result;
        do result = VipConnectRequest(vi, &local.net, &remote.net, PATIENCE, &attributes);
        while (result == VIP_NO_MATCH);
        CHECK(result == VIP_REJECT && state_of(vi) == VIP_STATE_IDLE);
        barrier();
        /* The request reaches a server that does not reply in time. */
        do result = VipConnectRequest(vi, &local.net, &remote.net, 50, NULL);
        while (result == VIP_NO_MATCH);
        CHECK(result == VIP_TIMEOUT && state_of(vi) == VIP_STATE_IDLE);
        barrier();
        do result = VipConnectRequest(vi, &local.net, &remote.net, PATIENCE, &attributes);
        while (result == VIP_NO_MATCH);
        OK(result);
        CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && attributes.MaxTransferSize == 1 << 24);
        CHECK(attributes.EnableRdmaWrite && attributes.Ptag == NULL);
        FAILS(VIP_INVALID_STATE, "is connected", VipConnectRequest(vi, &local.net, &remote.net, PATIENCE, NULL));
    } else {
        address from;
        barrier();
        OK(VipConnectWait(nic, &local.net, PATIENCE, &from.net, &attributes, &conn));
        CHECK(from.net.HostAddressLen == ADDRESS_LEN && from.net.DiscriminatorLen == 7);
        CHECK(memcmp(from.bytes, there("refused").bytes, 4 + ADDRESS_LEN + 7) == 0);
        CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
        OK(VipConnectReject(conn));
        FAILS(VIP_INVALID_PARAMETER, "answered already", VipConnectReject(conn));
        barrier();
        OK(VipConnectWait(nic, &local.net, PATIENCE, NULL, NULL, &conn));
        barrier();
        FAILS(VIP_TIMEOUT, "stopped waiting", VipConnectAccept(conn, vi));
        /* The VIs differ: the other side is not notified. */
        OK(VipConnectWait(nic, &local.net, VIP_INFINITE, NULL, NULL, &conn));
        VIP_VI_ATTRIBUTES wrong = attributes_of(VIP_SERVICE_RELIABLE_RECEPTION), right = attributes_of(VIP_SERVICE_RELIABLE_DELIVERY);
        OK(VipSetViAttributes(vi, &wrong));
        FAILS(VIP_INVALID_RELIABILITY_LEVEL, "differ", VipConnectAccept(conn, vi));
        wrong = right;
        wrong.MaxTransferSize--;
        OK(VipSetViAttributes(vi, &wrong));
        FAILS(VIP_INVALID_MTU, "differ", VipConnectAccept(conn, vi));
        wrong = right;
        wrong.QoS = &wrong;
        OK(VipSetViAttributes(vi, &wrong));
        FAILS(VIP_INVALID_QOS, "differ", VipConnectAccept(conn, vi));
        OK(VipSetViAttributes(vi, &right));
        OK(VipConnectAccept(conn, vi));
        FAILS(VIP_INVALID_STATE, "not idle", VipSetViAttributes(vi, &right));
        FAILS(VIP_INVALID_STATE, "not idle", VipDestroyVi(vi));
    }
    barrier();
    destroy(vi);
    barrier();
}

static VIP_RETURN peer_done(VIP_VI_HANDLE vi, VIP_VI_ATTRIBUTES *attributes) {
    VIP_RETURN result;
    do result = VipConnectPeerDone(vi, attributes);
    while (result == VIP_NOT_DONE);
    return result;
}

static void request_peer(VIP_VI_HANDLE vi, const char *from, const char *to, VIP_ULONG timeout) {
    address local = here(from), remote = there(to);
    OK(VipConnectPeerRequest(vi, &local.net, &remote.net, timeout));
}

static void peers(void) {
    memory descriptors = memory_of(256, 0), data = memory_of(64, 0);
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    VIP_VI_ATTRIBUTES attributes;
    FAILS(VIP_INVALID_STATE, "no pending request", VipConnectPeerDone(vi, NULL));
    /* One peer requests later than the other, in turns. */
    for (unsigned turn = 0; turn < 4; turn++) {
        if (turn % 2 == me) {
            request_peer(vi, me ? "b" : "a", me ? "a" : "b", VIP_INFINITE);
            CHECK(VipConnectPeerDone(vi, &attributes) != VIP_TIMEOUT);
            barrier();
        } else {
            barrier();
            request_peer(vi, me ? "b" : "a", me ? "a" : "b", VIP_INFINITE);
        }
        if (turn < 2)
            OK(VipConnectPeerWait(vi, &attributes));
        else
            OK(peer_done(vi, &attributes));
        CHECK(attributes.ReliabilityLevel == VIP_SERVICE_RELIABLE_RECEPTION && state_of(vi) == VIP_STATE_CONNECTED);
        OK(VipPostRecv(vi, describe(&descriptors, 0, &data, 0, 8), descriptors.handle));
        barrier();
        OK(VipPostSend(vi, describe(&descriptors, 1, &data, 0, turn), descriptors.handle));
        CHECK(received(vi)->CS.Length == turn);
        sent(vi);
        barrier();
        OK(VipDisconnect(vi));
        barrier();
        CHECK(state_of(vi) == VIP_STATE_IDLE);
    }
    /* The requests never match. */
    request_peer(vi, "c", "d", 20);
    CHECK(state_of(vi) == VIP_STATE_CONNECT_PENDING);
    FAILS(VIP_TIMEOUT, "before the timeout", peer_done(vi, NULL));
    request_peer(vi, "c", "d", 20);
    FAILS(VIP_TIMEOUT, "before the timeout", VipConnectPeerWait(vi, NULL));
    CHECK(state_of(vi) == VIP_STATE_IDLE);
    barrier();
    /* A disconnect withdraws a request. */
    request_peer(vi, "c", "d", VIP_INFINITE);
    OK(VipDisconnect(vi));
    CHECK(state_of(vi) == VIP_STATE_IDLE);
    barrier();
    /* Peers whose VIs differ both get the error, each with the attributes of the other. */
    VIP_VI_ATTRIBUTES mine = attributes_of(me ? VIP_SERVICE_RELIABLE_DELIVERY : VIP_SERVICE_RELIABLE_RECEPTION);
    OK(VipSetViAttributes(vi, &mine));
    request_peer(vi, "e", "e", VIP_INFINITE);
    CHECK(peer_done(vi, &attributes) == VIP_INVALID_RELIABILITY_LEVEL);
    CHECK(attributes.ReliabilityLevel != mine.ReliabilityLevel && state_of(vi) == VIP_STATE_IDLE);
    barrier();
    destroy(vi);
    free_memory(&data);
    free_memory(&descriptors);
}

/* The name service finds the other process. */
static void names(void) {
    char name[64], found[64];
    VIP_ULONG len = sizeof name;
    address remote = there("");
    FAILS(VIP_ERROR_NAMESERVICE, "VipNSInit", VipNSGetHostByAddr(nic, &remote.net, name, &len));
    OK(VipNSInit(nic, NULL));
    OK(VipNSGetHostByAddr(nic, &remote.net, name, &len));
    CHECK(len == strlen(name) + 1);
    address again = address_of(9, "x");
    OK(VipNSGetHostByName(nic, name, &again.net, 0));
    CHECK(memcmp(again.bytes + 4, remote.bytes + 4, ADDRESS_LEN) == 0 && again.net.DiscriminatorLen == 1);
    len = sizeof found;
    OK(VipNSGetHostByAddr(nic, &again.net, found, &len));
    CHECK(strcmp(name, found) == 0);
    OK(VipNSShutdown(nic));
}

int main(void) {
    begin();
    watch_errors();
    refused();
    peers();
    names();
    barrier();
    printf("process %u is done\n", me);
    end();
    return 0;
}
