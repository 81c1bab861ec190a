/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A job of one process: invalid arguments, and results that involve no other process. */

#include "errors.h"

static char place[64 * 64] __attribute__((aligned(64)));

static void nics(void) {
    VIP_NIC_HANDLE second;
    VIP_NIC_ATTRIBUTES about;
    FAILS(VIP_INVALID_PARAMETER, "no NIC eth0", VipOpenNic("eth0", &second));
    FAILS(VIP_INVALID_PARAMETER, "null", VipOpenNic(NULL, &second));
    FAILS(VIP_INVALID_PARAMETER, "null", VipOpenNic("VINIC", NULL));
    FAILS(VIP_INVALID_PARAMETER, "not a NIC", VipQueryNic(place, &about));
    FAILS(VIP_INVALID_PARAMETER, "null", VipQueryNic(nic, NULL));
    OK(VipQueryNic(nic, &about));
    CHECK(strcmp(about.Name, "VINIC") == 0 && about.NicAddressLen == 6 && about.LocalNicAddress[1] == 'P');
    CHECK(about.MaxTransferSize >= 32768 && about.ReliabilityLevelSupport == 7 && about.RDMAReadSupport == 6);
    CHECK(about.ThreadSafe && about.MaxVI >= 1024 && about.NativeMTU && about.MaxPtags && about.MaxCQ);
    FAILS(VIP_ERROR_NOT_SUPPORTED, "not discovered", VipQuerySystemManagementInfo(nic, VIP_SMI_AUTODISCOVERY, place));
    FAILS(VIP_INVALID_PARAMETER, "type 2", VipQuerySystemManagementInfo(nic, 2, place));
    /* Objects of a handle are destroyed with it, and their handles become stale. */
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE handle;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    OK(VipOpenNic("/dev/clanvi0", &second));
    OK(VipCloseNic(second));
    OK(VipOpenNic("VINIC0", &second));
    OK(VipCreatePtag(second, &tag));
    VIP_MEM_ATTRIBUTES memory = {tag, 0, 0};
    OK(VipRegisterMem(second, place, sizeof place, &memory, &handle));
    OK(VipCreateCQ(second, 1, &cq));
    VIP_VI_ATTRIBUTES attributes = attributes_of(VIP_SERVICE_RELIABLE_DELIVERY);
    FAILS(VIP_INVALID_PTAG, "not a protection tag", VipCreateVi(second, &attributes, cq, cq, &vi));
    attributes.Ptag = tag;
    OK(VipCreateVi(second, &attributes, cq, NULL, &vi));
    VIP_VI_ATTRIBUTES others = attributes_of(VIP_SERVICE_RELIABLE_DELIVERY);
    FAILS(VIP_INVALID_PARAMETER, "another NIC", VipCreateVi(nic, &others, cq, cq, &vi));
    OK(VipQueryNic(second, &about));
    OK(VipCloseNic(second));
    /* The address stays valid; the address sanitizer detects an error. */
    CHECK(about.LocalNicAddress[1] == 'P');
    FAILS(VIP_INVALID_PARAMETER, "not a NIC", VipCloseNic(second));
    FAILS(VIP_INVALID_PARAMETER, "not a VI", VipDisconnect(vi));
    FAILS(VIP_INVALID_PARAMETER, "not a completion queue", VipDestroyCQ(cq));
    for (int i = 0; i < 63; i++) OK(VipOpenNic("VINIC", (VIP_NIC_HANDLE *)(void *)place + i));
    FAILS(VIP_ERROR_RESOURCE, "maximum number of NIC handles", VipOpenNic("VINIC", &second));
    for (int i = 0; i < 63; i++) OK(VipCloseNic(((VIP_NIC_HANDLE *)(void *)place)[i]));
}

static void memories(void) {
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE handle;
    VIP_MEM_ATTRIBUTES attributes = {ptag, VIP_TRUE, VIP_FALSE}, got;
    FAILS(VIP_INVALID_PARAMETER, "not a NIC", VipCreatePtag(NULL, &tag));
    FAILS(VIP_INVALID_PARAMETER, "null", VipCreatePtag(nic, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipRegisterMem(nic, NULL, 1, &attributes, &handle));
    FAILS(VIP_INVALID_PARAMETER, "0 bytes", VipRegisterMem(nic, place, 0, &attributes, &handle));
    FAILS(VIP_INVALID_PARAMETER, "not valid memory", VipRegisterMem(nic, place, (VIP_ULONG)-1, &attributes, &handle));
    OK(VipCreatePtag(nic, &tag));
    OK(VipRegisterMem(nic, place, sizeof place, &attributes, &handle));
    OK(VipQueryMem(nic, place, handle, &got));
    CHECK(got.Ptag == ptag && got.EnableRdmaWrite && !got.EnableRdmaRead);
    attributes = (VIP_MEM_ATTRIBUTES){tag, VIP_FALSE, VIP_TRUE};
    OK(VipSetMemAttributes(nic, place, handle, &attributes));
    OK(VipQueryMem(nic, place, handle, &got));
    CHECK(got.Ptag == tag && !got.EnableRdmaWrite && got.EnableRdmaRead);
    FAILS(VIP_ERROR_RESOURCE, "deregister", VipDestroyPtag(nic, tag));
    FAILS(VIP_INVALID_PARAMETER, "no memory at", VipQueryMem(nic, place + 1, handle, &got));
    FAILS(VIP_INVALID_PARAMETER, "no memory at", VipDeregisterMem(nic, place, handle + 1));
    FAILS(VIP_INVALID_PARAMETER, "null", VipQueryMem(nic, place, handle, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipSetMemAttributes(nic, place, handle, NULL));
    OK(VipDeregisterMem(nic, place, handle));
    FAILS(VIP_INVALID_PARAMETER, "no memory at", VipDeregisterMem(nic, place, handle));
    OK(VipDestroyPtag(nic, tag));
    FAILS(VIP_INVALID_PTAG, "not a protection tag", VipDestroyPtag(nic, tag));
    FAILS(VIP_INVALID_PTAG, "not a protection tag", VipRegisterMem(nic, place, 1, &attributes, &handle));
}

static void vis(void) {
    VIP_VI_ATTRIBUTES attributes = attributes_of(VIP_SERVICE_RELIABLE_RECEPTION), got;
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    VIP_BOOLEAN no_send, no_recv;
    FAILS(VIP_INVALID_PARAMETER, "null", VipCreateVi(nic, NULL, NULL, NULL, &vi));
    attributes.ReliabilityLevel = 3;
    FAILS(VIP_INVALID_RELIABILITY_LEVEL, "3 is not", VipCreateVi(nic, &attributes, NULL, NULL, &vi));
    attributes = attributes_of(VIP_SERVICE_UNRELIABLE);
    attributes.EnableRdmaRead = VIP_TRUE;
    FAILS(VIP_INVALID_RDMAREAD, "reliable VI", VipCreateVi(nic, &attributes, NULL, NULL, &vi));
    attributes = attributes_of(VIP_SERVICE_UNRELIABLE);
    attributes.MaxTransferSize = (1UL << 30) + 1;
    FAILS(VIP_INVALID_MTU, "exceeds", VipCreateVi(nic, &attributes, NULL, NULL, &vi));
    attributes.MaxTransferSize = 1;
    FAILS(VIP_INVALID_PARAMETER, "not a completion queue", VipCreateVi(nic, &attributes, place, NULL, &vi));
    vi = vi_with(VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    OK(VipQueryVi(vi, &state, &got, &no_send, &no_recv));
    CHECK(state == VIP_STATE_IDLE && got.Ptag == ptag && got.MaxTransferSize == 1 << 24 && no_send && no_recv);
    FAILS(VIP_INVALID_PARAMETER, "null", VipSetViAttributes(vi, NULL));
    memory descriptors = memory_of(64 * 2, 0);
    VIP_DESCRIPTOR *descriptor = describe(&descriptors, 0, &descriptors, 64, 8), *done;
    OK(VipPostRecv(vi, descriptor, descriptors.handle));
    CHECK(VipRecvDone(vi, &done) == VIP_NOT_DONE && VipRecvWait(vi, 1, &done) == VIP_TIMEOUT);
    OK(VipQueryVi(vi, NULL, NULL, &no_send, &no_recv));
    CHECK(no_send && !no_recv);
    FAILS(VIP_ERROR_RESOURCE, "are on a queue", VipDestroyVi(vi));
    FAILS(VIP_INVALID_PARAMETER, "multiple of 64", VipPostSend(vi, (VIP_DESCRIPTOR *)(void *)(descriptors.bytes + 16), descriptors.handle));
    FAILS(VIP_INVALID_PARAMETER, "null", VipPostRecv(vi, NULL, descriptors.handle));
    FAILS(VIP_INVALID_PARAMETER, "null", VipSendDone(vi, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipRecvWait(vi, 0, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipSendNotify(vi, NULL, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipRecvNotify(vi, NULL, NULL));
    FAILS(VIP_INVALID_PARAMETER, "not a VI", VipPostSend(nic, descriptor, descriptors.handle));
    FAILS(VIP_INVALID_PARAMETER, "not a VI", VipSendWait(NULL, 0, &done));
    /* The capacity of a queue. On an idle VI a send completes at once. */
    for (int i = 1; i < 1024; i++) OK(VipPostRecv(vi, descriptor, descriptors.handle));
    FAILS(VIP_ERROR_RESOURCE, "1024 descriptors", VipPostRecv(vi, descriptor, descriptors.handle));
    OK(VipPostSend(vi, describe(&descriptors, 1, &descriptors, 0, 8), descriptors.handle));
    CHECK(failed_send(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    destroy(vi);
    FAILS(VIP_INVALID_PARAMETER, "not a VI", VipDestroyVi(vi));
    free_memory(&descriptors);
    unsigned count = 0;
    static VIP_VI_HANDLE many[5000];
    attributes = attributes_of(VIP_SERVICE_UNRELIABLE);
    while (VipCreateVi(nic, &attributes, NULL, NULL, &many[count]) == VIP_SUCCESS) CHECK(++count < 5000);
    CHECK(count == 4096 && strstr(VipLastError(), "maximum number of VIs"));
    while (count--) OK(VipDestroyVi(many[count]));
}

static void queues(void) {
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN is_recv;
    FAILS(VIP_ERROR_RESOURCE, "not 0", VipCreateCQ(nic, 0, &cq));
    FAILS(VIP_ERROR_RESOURCE, "entries", VipCreateCQ(nic, (VIP_ULONG)-1, &cq));
    FAILS(VIP_INVALID_PARAMETER, "null", VipCreateCQ(nic, 1, NULL));
    FAILS(VIP_INVALID_PARAMETER, "not a completion queue", VipCQDone(nic, &vi, &is_recv));
    FAILS(VIP_INVALID_PARAMETER, "not a completion queue", VipCQWait(NULL, 0, &vi, &is_recv));
    FAILS(VIP_INVALID_PARAMETER, "not a completion queue", VipResizeCQ(NULL, 1));
    OK(VipCreateCQ(nic, 1, &cq));
    FAILS(VIP_INVALID_PARAMETER, "null", VipCQNotify(cq, NULL, NULL));
    FAILS(VIP_ERROR_RESOURCE, "not 0", VipResizeCQ(cq, 0));
    /* A full completion queue loses entries, and reports an error. */
    vi = vi_with(VIP_SERVICE_RELIABLE_DELIVERY, cq, NULL);
    memory descriptors = memory_of(64 * 4, 0);
    for (unsigned i = 0; i < 2; i++)
        OK(VipPostSend(vi, describe(&descriptors, i, &descriptors, 128, 8), descriptors.handle));
    await_error(VIP_ERROR_VI_OVERRUN, vi);
    CHECK(last_of[VIP_ERROR_VI_OVERRUN].CQHandle == cq && last_of[VIP_ERROR_VI_OVERRUN].ResourceCode == VIP_RESOURCE_CQ);
    OK(VipResizeCQ(cq, 4));
    OK(VipPostSend(vi, describe(&descriptors, 2, &descriptors, 128, 8), descriptors.handle));
    FAILS(VIP_ERROR_RESOURCE, "holds 2 entries", VipResizeCQ(cq, 1));
    for (unsigned i = 0; i < 3; i++) CHECK(failed_send(vi) == VIP_STATUS_DESC_FLUSHED_ERROR);
    VIP_VI_HANDLE completed = NULL;
    OK(VipCQDone(cq, &completed, &is_recv));
    CHECK(completed == vi && !is_recv);
    destroy(vi);
    /* Entries of a destroyed VI are removed. */
    CHECK(VipCQDone(cq, &completed, &is_recv) == VIP_NOT_DONE);
    OK(VipDestroyCQ(cq));
    free_memory(&descriptors);
}

static void connections(void) {
    VIP_VI_HANDLE vi = vi_with(VIP_SERVICE_UNRELIABLE, NULL, NULL);
    address own = address_of(0, "x"), missing = address_of(77, "x"), odd = own;
    VIP_CONN_HANDLE conn;
    FAILS(VIP_INVALID_PARAMETER, "null", VipConnectWait(nic, NULL, 0, NULL, NULL, &conn));
    FAILS(VIP_INVALID_PARAMETER, "null", VipConnectWait(nic, &own.net, 0, NULL, NULL, NULL));
    FAILS(VIP_INVALID_PARAMETER, "not that of this NIC", VipConnectWait(nic, &missing.net, 0, NULL, NULL, &conn));
    CHECK(VipConnectWait(nic, &own.net, 0, NULL, NULL, &conn) == VIP_TIMEOUT);
    CHECK(VipConnectWait(nic, &own.net, 1, NULL, NULL, &conn) == VIP_TIMEOUT);
    FAILS(VIP_INVALID_PARAMETER, "does not exist", VipConnectAccept(vi, vi));
    FAILS(VIP_INVALID_PARAMETER, "does not exist", VipConnectReject(NULL));
    FAILS(VIP_INVALID_PARAMETER, "timeout is 0", VipConnectRequest(vi, &own.net, &own.net, 0, NULL));
    FAILS(VIP_NOT_REACHABLE, "no process", VipConnectRequest(vi, &own.net, &missing.net, 1, NULL));
    FAILS(VIP_NO_MATCH, "no process waits", VipConnectRequest(vi, &own.net, &own.net, PATIENCE, NULL));
    FAILS(VIP_INVALID_PARAMETER, "null", VipConnectRequest(vi, &own.net, NULL, 1, NULL));
    odd.net.HostAddressLen = 4;
    FAILS(VIP_INVALID_PARAMETER, "4 bytes", VipConnectPeerRequest(vi, &own.net, &odd.net, 1));
    odd.net.HostAddressLen = 0;
    odd.net.DiscriminatorLen = 65;
    FAILS(VIP_INVALID_PARAMETER, "65 bytes", VipConnectPeerRequest(vi, &odd.net, &own.net, 1));
    FAILS(VIP_INVALID_STATE, "no pending request", VipConnectPeerWait(vi, NULL));
    destroy(vi);
}

static void names(const char *hosts) {
    char host[64], name[64];
    VIP_ULONG len = sizeof host;
    address own = address_of(0, ""), got = address_of(5, "x");
    FAILS(VIP_ERROR_NAMESERVICE, "VipNSInit", VipNSGetHostByName(nic, "x", &got.net, 0));
    FAILS(VIP_ERROR_NAMESERVICE, "VipNSInit", VipNSShutdown(nic));
    FAILS(VIP_ERROR_NAMESERVICE, "/nowhere", VipNSInit(nic, (void *)(uintptr_t) "/nowhere"));
    OK(VipNSInit(nic, NULL));
    OK(VipNSGetHostByAddr(nic, &own.net, host, &len));
    OK(VipNSGetHostByName(nic, host, &got.net, 0));
    CHECK(memcmp(own.bytes + 4, got.bytes + 4, ADDRESS_LEN) == 0);
    FAILS(VIP_ERROR_NAMESERVICE, "no process 1", VipNSGetHostByName(nic, host, &got.net, 1));
    FAILS(VIP_ERROR_NAMESERVICE, "server", VipNSGetHostByName(nic, "server", &got.net, 0));
    got.net.HostAddressLen = 5;
    FAILS(VIP_INVALID_PARAMETER, "is 5", VipNSGetHostByName(nic, host, &got.net, 0));
    FAILS(VIP_INVALID_PARAMETER, "null", VipNSGetHostByName(nic, NULL, &got.net, 0));
    len = 1;
    FAILS(VIP_ERROR_RESOURCE, "NameLen is 1", VipNSGetHostByAddr(nic, &own.net, name, &len));
    CHECK(len == strlen(host) + 1);
    got = address_of(5, "x");
    FAILS(VIP_ERROR_NAMESERVICE, "no process", VipNSGetHostByAddr(nic, &got.net, name, &len));
    FAILS(VIP_INVALID_PARAMETER, "null", VipNSGetHostByAddr(nic, &own.net, NULL, &len));
    /* A file defines another name. */
    FILE *file = fopen(hosts, "w");
    CHECK(file && fprintf(file, "# ours\nserver %s\n", host) > 0 && fclose(file) == 0);
    OK(VipNSInit(nic, (void *)(uintptr_t)hosts));
    OK(VipNSGetHostByName(nic, "server", &got.net, 0));
    CHECK(memcmp(own.bytes + 4, got.bytes + 4, ADDRESS_LEN) == 0);
    len = sizeof name;
    OK(VipNSGetHostByAddr(nic, &own.net, name, &len));
    CHECK(strcmp(name, "server") == 0);
    CHECK((file = fopen(hosts, "w")) && fputs("alone\n", file) >= 0 && fclose(file) == 0);
    FAILS(VIP_ERROR_NAMESERVICE, "line 1", VipNSInit(nic, (void *)(uintptr_t)hosts));
    OK(VipNSShutdown(nic));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    VIP_NIC_HANDLE none = NULL;
    FAILS(VIP_INVALID_PARAMETER, "not a NIC", VipCloseNic(none));
    open_nic();
    watch_errors();
    nics();
    memories();
    vis();
    queues();
    connections();
    names(argv[1]);
    OK(VipErrorCallback(nic, NULL, NULL));
    FAILS(VIP_INVALID_PARAMETER, "not a NIC", VipErrorCallback(NULL, NULL, NULL));
    OK(VipDestroyPtag(nic, ptag));
    OK(VipCloseNic(nic));
    puts("all is as it should be");
    return 0;
}
