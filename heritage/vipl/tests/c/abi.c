/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Types and constants of vipl.h as a C compiler sees them. header.rs compares them with Rust's. The
 * known layout of the specification is asserted. */

#include <vipl.h>
#include <vipl.h>

#include <stddef.h>
#include <stdio.h>

#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)

typedef VIP_RETURN result;
typedef void *handle;
typedef const VIP_NET_ADDRESS *from;
typedef void (*work)(handle, handle, handle, VIP_DESCRIPTOR *);
typedef void (*entry)(handle, handle, handle, int);

IS(VipOpenNic, result (*)(const char *, handle *));
IS(VipCloseNic, result (*)(handle));
IS(VipCreateVi, result (*)(handle, const VIP_VI_ATTRIBUTES *, handle, handle, handle *));
IS(VipQueryVi, result (*)(handle, VIP_VI_STATE *, VIP_VI_ATTRIBUTES *, int *, int *));
IS(VipConnectWait, result (*)(handle, from, unsigned long, VIP_NET_ADDRESS *, VIP_VI_ATTRIBUTES *, handle *));
IS(VipConnectAccept, result (*)(handle, handle));
IS(VipConnectRequest, result (*)(handle, from, from, unsigned long, VIP_VI_ATTRIBUTES *));
IS(VipConnectPeerRequest, result (*)(handle, from, from, unsigned long));
IS(VipConnectPeerWait, result (*)(handle, VIP_VI_ATTRIBUTES *));
IS(VipRegisterMem, result (*)(handle, void *, unsigned long, const VIP_MEM_ATTRIBUTES *, uint32_t *));
IS(VipPostSend, result (*)(handle, VIP_DESCRIPTOR *, uint32_t));
IS(VipSendDone, result (*)(handle, VIP_DESCRIPTOR **));
IS(VipRecvWait, result (*)(handle, unsigned long, VIP_DESCRIPTOR **));
IS(VipRecvNotify, result (*)(handle, void *, work));
IS(VipCreateCQ, result (*)(handle, unsigned long, handle *));
IS(VipCQWait, result (*)(handle, unsigned long, handle *, int *));
IS(VipCQNotify, result (*)(handle, void *, entry));
IS(VipErrorCallback, result (*)(handle, void *, void (*)(void *, VIP_ERROR_DESCRIPTOR *)));
IS(VipNSGetHostByName, result (*)(handle, const char *, VIP_NET_ADDRESS *, unsigned long));
IS(VipNSGetHostByAddr, result (*)(handle, from, char *, unsigned long *));

_Static_assert(sizeof(VIP_DESCRIPTOR) == 64, "a descriptor");
_Static_assert(offsetof(VIP_DESCRIPTOR, DS) == 32, "the segments");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, NextHandle) == 8, "NextHandle");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, SegCount) == 12, "SegCount");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, Control) == 14, "Control");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, ImmediateData) == 20, "ImmediateData");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, Length) == 24, "Length");
_Static_assert(offsetof(VIP_CONTROL_SEGMENT, Status) == 28, "Status");
_Static_assert(offsetof(VIP_DATA_SEGMENT, Handle) == 8, "Handle");
_Static_assert(offsetof(VIP_ADDRESS_SEGMENT, Handle) == 8, "Handle");
_Static_assert(offsetof(VIP_NET_ADDRESS, HostAddress) == 4, "HostAddress");

#define SAME(first, second) _Static_assert(_Generic((first)0, second: 1, default: 0), #first)
SAME(VIP_PVOID, void *);
SAME(VIP_CHAR, char);
SAME(VIP_UCHAR, unsigned char);
SAME(VIP_USHORT, unsigned short);
SAME(VIP_UINT8, uint8_t);
SAME(VIP_UINT16, uint16_t);
SAME(VIP_UINT32, uint32_t);
SAME(VIP_UINT64, uint64_t);
SAME(VIP_VI_CALLBACK, work);
SAME(VIP_CQ_CALLBACK, entry);
_Static_assert(offsetof(VIP_AUTODISCOVERY_LIST, ADAddrArray) == sizeof(VIP_ULONG), "addresses");
_Static_assert((VIP_STATUS_RESERVED ^ 0xffffffff) == (VIP_STATUS_DONE | VIP_STATUS_ERROR_MASK |
                                                      VIP_STATUS_OP_MASK | VIP_STATUS_IMMEDIATE),
               "all other bits are reserved");

int main(void) {
    printf("VIP_VI_ATTRIBUTES %zu\n", sizeof(VIP_VI_ATTRIBUTES));
    printf("VIP_MEM_ATTRIBUTES %zu\n", sizeof(VIP_MEM_ATTRIBUTES));
    printf("VIP_NIC_ATTRIBUTES %zu\n", sizeof(VIP_NIC_ATTRIBUTES));
    printf("VIP_ERROR_DESCRIPTOR %zu\n", sizeof(VIP_ERROR_DESCRIPTOR));
    printf("RDMAReadSupport %zu\n", offsetof(VIP_NIC_ATTRIBUTES, RDMAReadSupport));
    return 0;
}
