// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a job of one sends a message to itself, from one VI to another.

#include <vipl.h>

#include <cstring>
#include <initializer_list>

struct alignas(64) area {
    VIP_DESCRIPTOR send, recv;
    char out[8], in[8];
};

static VIP_NET_ADDRESS *address_of(unsigned char *bytes, unsigned char service) {
    const unsigned char own[] = {6, 0, 1, 0, 2, 'P', 'L', 0, 0, 0, service};
    std::memcpy(bytes, own, sizeof own);
    return reinterpret_cast<VIP_NET_ADDRESS *>(bytes);
}

int main() {
    static area own;
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE ptag;
    VIP_MEM_HANDLE memory;
    if (VipOpenNic("VINIC", &nic) != VIP_SUCCESS || VipCreatePtag(nic, &ptag) != VIP_SUCCESS) return 1;
    VIP_MEM_ATTRIBUTES attributes = {ptag, VIP_FALSE, VIP_FALSE};
    if (VipRegisterMem(nic, &own, sizeof own, &attributes, &memory) != VIP_SUCCESS) return 2;
    VIP_VI_HANDLE vis[2];
    VIP_VI_ATTRIBUTES reliable = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, nullptr, ptag, VIP_FALSE, VIP_FALSE};
    alignas(8) unsigned char a[16], b[16];
    for (auto &vi : vis)
        if (VipCreateVi(nic, &reliable, nullptr, nullptr, &vi) != VIP_SUCCESS) return 3;
    if (VipConnectPeerRequest(vis[0], address_of(a, 'a'), address_of(b, 'b'), VIP_INFINITE) != VIP_SUCCESS) return 4;
    if (VipConnectPeerRequest(vis[1], address_of(b, 'b'), address_of(a, 'a'), VIP_INFINITE) != VIP_SUCCESS) return 5;
    for (auto vi : vis)
        if (VipConnectPeerWait(vi, nullptr) != VIP_SUCCESS) return 6;
    std::strcpy(own.out, "ahoy");
    for (auto descriptor : {&own.send, &own.recv}) {
        descriptor->CS.SegCount = 1;
        descriptor->CS.Length = sizeof own.out;
        descriptor->DS[0].Local.Data.Address = descriptor == &own.send ? own.out : own.in;
        descriptor->DS[0].Local.Handle = memory;
        descriptor->DS[0].Local.Length = sizeof own.out;
    }
    VIP_DESCRIPTOR *done = nullptr;
    if (VipPostRecv(vis[1], &own.recv, memory) != VIP_SUCCESS) return 7;
    if (VipPostSend(vis[0], &own.send, memory) != VIP_SUCCESS) return 8;
    if (VipRecvWait(vis[1], VIP_INFINITE, &done) != VIP_SUCCESS || done != &own.recv) return 9;
    if (std::strcmp(own.in, "ahoy") != 0) return 10;
    if (VipSendWait(vis[0], VIP_INFINITE, &done) != VIP_SUCCESS || done != &own.send) return 11;
    return VipCloseNic(nic);
}
