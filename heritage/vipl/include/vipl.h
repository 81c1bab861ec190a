/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* VIPL, the programming interface of the Virtual Interface Architecture, on Portolan.
 *
 * Generated from heritage/vipl by cbindgen: do not edit. docs/heritage.md describes each function,
 * and names the choices that were made where the original is unknown. */

#ifndef VIPL_H
#define VIPL_H

#include <stddef.h>
#include <stdint.h>

/**
 * The descriptor sends, or receives.
 */
#define VIP_CONTROL_OP_SENDRECV 0

/**
 * The descriptor writes into the memory of the other side.
 */
#define VIP_CONTROL_OP_RDMAWRITE 1

/**
 * The descriptor reads the memory of the other side.
 */
#define VIP_CONTROL_OP_RDMAREAD 2

/**
 * The bits that say what the descriptor does.
 */
#define VIP_CONTROL_OP_MASK 3

/**
 * Immediate data go with it.
 */
#define VIP_CONTROL_IMMEDIATE 4

/**
 * It waits until the RDMA reads before it have ended.
 */
#define VIP_CONTROL_QFENCE 8

/**
 * The descriptor has ended.
 */
#define VIP_STATUS_DONE 1

/**
 * It cannot be understood.
 */
#define VIP_STATUS_FORMAT_ERROR 2

/**
 * It names memory that is not registered, or with another protection tag.
 */
#define VIP_STATUS_PROTECTION_ERROR 4

/**
 * It is too long, or what has arrived is too long for it.
 */
#define VIP_STATUS_LENGTH_ERROR 8

/**
 * A part of it was transferred.
 */
#define VIP_STATUS_PARTIAL_ERROR 16

/**
 * It was on a queue that was emptied because the connection has ended.
 */
#define VIP_STATUS_DESC_FLUSHED_ERROR 32

/**
 * The other side is gone.
 */
#define VIP_STATUS_TRANSPORT_ERROR 64

/**
 * The other side does not open that memory.
 */
#define VIP_STATUS_RDMA_PROT_ERROR 128

/**
 * The other side had no descriptor for it, or none that it could use.
 */
#define VIP_STATUS_REMOTE_DESC_ERROR 256

/**
 * All errors.
 */
#define VIP_STATUS_ERROR_MASK 510

/**
 * What has ended is a send.
 */
#define VIP_STATUS_OP_SEND 0

/**
 * What has ended is a receive.
 */
#define VIP_STATUS_OP_RECEIVE 65536

/**
 * What has ended is an RDMA write.
 */
#define VIP_STATUS_OP_RDMA_WRITE 131072

/**
 * What has ended is a receive that an RDMA write of the other side has used for its immediate data.
 */
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 196608

/**
 * What has ended is an RDMA read.
 */
#define VIP_STATUS_OP_RDMA_READ 262144

/**
 * The bits that say what has ended.
 */
#define VIP_STATUS_OP_MASK 458752

/**
 * Immediate data have come with it.
 */
#define VIP_STATUS_IMMEDIATE 524288

/**
 * Messages may be lost; a send has ended when it has left.
 */
#define VIP_SERVICE_UNRELIABLE 1

/**
 * Messages arrive once and in order; a send has ended when it has arrived.
 */
#define VIP_SERVICE_RELIABLE_DELIVERY 2

/**
 * Messages arrive once and in order; a send has ended when it is in the receiver's memory.
 */
#define VIP_SERVICE_RELIABLE_RECEPTION 4

/**
 * Which other hosts there are.
 */
#define VIP_SMI_AUTODISCOVERY 1

/**
 * As long as it takes.
 */
#define VIP_INFINITE 4294967295

/**
 * False.
 */
#define VIP_FALSE 0

/**
 * True.
 */
#define VIP_TRUE 1

/**
 * How a function has ended.
 */
typedef int VIP_RETURN;

/**
 * A NIC, as VipOpenNic() gives it.
 */
typedef void *VIP_NIC_HANDLE;

/**
 * A number of as many bits as a pointer has.
 */
typedef unsigned long VIP_ULONG;

/**
 * True or false.
 */
typedef int VIP_BOOLEAN;

/**
 * A set of reliability levels, or one.
 */
typedef uint16_t VIP_RELIABILITY_LEVEL;

/**
 * What a NIC is like.
 */
typedef struct {
  /**
   * Its name.
   */
  char Name[64];
  /**
   * Version of the hardware, of which there is none.
   */
  VIP_ULONG HardwareVersion;
  /**
   * Version of the library.
   */
  VIP_ULONG ProviderVersion;
  /**
   * Bytes of an address without discriminator.
   */
  uint16_t NicAddressLen;
  /**
   * This process's, in memory of the library's that is there as long as the process.
   */
  const uint8_t *LocalNicAddress;
  /**
   * Any thread may call any function.
   */
  VIP_BOOLEAN ThreadSafe;
  /**
   * Bytes of the longest discriminator.
   */
  uint16_t MaxDiscriminatorLen;
  /**
   * Bytes that may be registered.
   */
  VIP_ULONG MaxRegisterBytes;
  /**
   * Pieces that may be registered.
   */
  VIP_ULONG MaxRegisterRegions;
  /**
   * Bytes of the greatest piece.
   */
  VIP_ULONG MaxRegisterBlockBytes;
  /**
   * VIs.
   */
  VIP_ULONG MaxVI;
  /**
   * Descriptors on a queue.
   */
  VIP_ULONG MaxDescriptorsPerQueue;
  /**
   * Segments of a descriptor.
   */
  VIP_ULONG MaxSegmentsPerDesc;
  /**
   * Completion queues.
   */
  VIP_ULONG MaxCQ;
  /**
   * Entries of a completion queue.
   */
  VIP_ULONG MaxCQEntries;
  /**
   * Bytes of the longest transfer.
   */
  VIP_ULONG MaxTransferSize;
  /**
   * Bytes that travel in one piece.
   */
  VIP_ULONG NativeMTU;
  /**
   * Protection tags.
   */
  VIP_ULONG MaxPtags;
  /**
   * The levels that there are.
   */
  VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
  /**
   * The levels with RDMA read.
   */
  VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

/**
 * A protection tag, as VipCreatePtag() gives it.
 */
typedef void *VIP_PROTECTION_HANDLE;

/**
 * What registered memory is like.
 */
typedef struct {
  /**
   * Whose VIs may use it.
   */
  VIP_PROTECTION_HANDLE Ptag;
  /**
   * Other processes may write to it.
   */
  VIP_BOOLEAN EnableRdmaWrite;
  /**
   * Other processes may read it.
   */
  VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

/**
 * Registered memory, as VipRegisterMem() gives it.
 */
typedef uint32_t VIP_MEM_HANDLE;

/**
 * A quality of service; any number, of which the two sides of a connection need the same.
 */
typedef void *VIP_QOS;

/**
 * What a VI is to be like.
 */
typedef struct {
  /**
   * One of VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION.
   */
  VIP_RELIABILITY_LEVEL ReliabilityLevel;
  /**
   * Bytes of the longest transfer.
   */
  VIP_ULONG MaxTransferSize;
  /**
   * A quality of service.
   */
  VIP_QOS QoS;
  /**
   * What the memory that it uses is registered with.
   */
  VIP_PROTECTION_HANDLE Ptag;
  /**
   * The other side may write to memory.
   */
  VIP_BOOLEAN EnableRdmaWrite;
  /**
   * The other side may read memory.
   */
  VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

/**
 * A completion queue, as VipCreateCQ() gives it.
 */
typedef void *VIP_CQ_HANDLE;

/**
 * A VI, as VipCreateVi() gives it.
 */
typedef void *VIP_VI_HANDLE;

/**
 * A state of a VI.
 */
typedef int VIP_VI_STATE;

/**
 * An address: `HostAddressLen` bytes of a host, and `DiscriminatorLen` bytes that tell its services apart.
 * More bytes follow in memory than are declared.
 */
typedef struct {
  /**
   * Bytes of the host.
   */
  uint16_t HostAddressLen;
  /**
   * Bytes behind those.
   */
  uint16_t DiscriminatorLen;
  /**
   * All of them.
   */
  uint8_t HostAddress[1];
} VIP_NET_ADDRESS;

/**
 * A request for a connection, as VipConnectWait() gives it.
 */
typedef void *VIP_CONN_HANDLE;

/**
 * An address in 64 bits.
 */
typedef union {
  /**
   * As a number.
   */
  uint64_t AddressBits;
  /**
   * As a pointer.
   */
  void *Address;
} VIP_PVOID64;

/**
 * The first part of a descriptor.
 */
typedef struct {
  /**
   * Not read: queues are kept by the library.
   */
  VIP_PVOID64 Next;
  /**
   * Not read.
   */
  VIP_MEM_HANDLE NextHandle;
  /**
   * Segments that follow, the address segment among them.
   */
  uint16_t SegCount;
  /**
   * VIP_CONTROL_ bits.
   */
  uint16_t Control;
  /**
   * Zero.
   */
  uint32_t Reserved;
  /**
   * A word that goes with the message.
   */
  uint32_t ImmediateData;
  /**
   * Bytes of all data segments; of a receive that has ended, those that have arrived.
   */
  uint32_t Length;
  /**
   * VIP_STATUS_ bits; written when the descriptor has ended.
   */
  uint32_t Status;
} VIP_CONTROL_SEGMENT;

/**
 * Where an RDMA goes to or comes from.
 */
typedef struct {
  /**
   * Address in the other process.
   */
  VIP_PVOID64 Data;
  /**
   * The handle that the other process has for the memory.
   */
  VIP_MEM_HANDLE Handle;
  /**
   * Zero.
   */
  uint32_t Reserved;
} VIP_ADDRESS_SEGMENT;

/**
 * A piece of memory.
 */
typedef struct {
  /**
   * Where it begins.
   */
  VIP_PVOID64 Data;
  /**
   * Its handle.
   */
  VIP_MEM_HANDLE Handle;
  /**
   * Bytes.
   */
  uint32_t Length;
} VIP_DATA_SEGMENT;

/**
 * A segment of either kind.
 */
typedef union {
  /**
   * An address segment, the first of an RDMA.
   */
  VIP_ADDRESS_SEGMENT Remote;
  /**
   * A data segment.
   */
  VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

/**
 * A descriptor: more segments follow in memory if `CS.SegCount` says so. It begins at a multiple of 64.
 */
typedef struct {
  /**
   * What is to be done, and how it has ended.
   */
  VIP_CONTROL_SEGMENT CS;
  /**
   * The segments.
   */
  VIP_DESCRIPTOR_SEGMENT DS[2];
} VIP_DESCRIPTOR;

/**
 * What the program wants to be called with when a descriptor has ended.
 */
typedef void (*VIP_WORK_HANDLER)(void *context,
                                 VIP_NIC_HANDLE nic,
                                 VIP_VI_HANDLE vi,
                                 VIP_DESCRIPTOR *descriptor);

/**
 * What the program wants to be called with when something has ended.
 */
typedef void (*VIP_CQ_HANDLER)(void *context,
                               VIP_NIC_HANDLE nic,
                               VIP_VI_HANDLE vi,
                               VIP_BOOLEAN is_receive);

/**
 * What kind of thing an asynchronous error has happened to.
 */
typedef unsigned int VIP_RESOURCE_CODE;

/**
 * What an asynchronous error is about.
 */
typedef unsigned int VIP_ERROR_CODE;

/**
 * An asynchronous error.
 */
typedef struct {
  /**
   * The NIC.
   */
  VIP_NIC_HANDLE NicHandle;
  /**
   * The VI, or null.
   */
  VIP_VI_HANDLE ViHandle;
  /**
   * The completion queue, or null.
   */
  VIP_CQ_HANDLE CQHandle;
  /**
   * The descriptor, or null.
   */
  VIP_DESCRIPTOR *DescriptorPtr;
  /**
   * What was being done: VIP_STATUS_OP_ bits.
   */
  VIP_ULONG OpCode;
  /**
   * What it has happened to.
   */
  VIP_RESOURCE_CODE ResourceCode;
  /**
   * What has happened.
   */
  VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/**
 * What the program wants to be called with when something goes wrong.
 */
typedef void (*VIP_ERROR_HANDLER)(void *context, VIP_ERROR_DESCRIPTOR *error);

/**
 * It has done what it should.
 */
#define VIP_SUCCESS 0

/**
 * Nothing has ended yet.
 */
#define VIP_NOT_DONE 1

/**
 * An argument cannot be.
 */
#define VIP_INVALID_PARAMETER 2

/**
 * Something has run out, or is in use.
 */
#define VIP_ERROR_RESOURCE 3

/**
 * The time is over.
 */
#define VIP_TIMEOUT 4

/**
 * The other side has rejected the connection.
 */
#define VIP_REJECT 5

/**
 * The two VIs differ in their reliability level, or there is none such.
 */
#define VIP_INVALID_RELIABILITY_LEVEL 6

/**
 * The two VIs differ in their greatest transfer, or it is too great.
 */
#define VIP_INVALID_MTU 7

/**
 * The two VIs differ in their quality of service.
 */
#define VIP_INVALID_QOS 8

/**
 * There is no such protection tag.
 */
#define VIP_INVALID_PTAG 9

/**
 * RDMA read needs a reliable VI.
 */
#define VIP_INVALID_RDMAREAD 10

/**
 * A descriptor has ended with an error, which its status tells.
 */
#define VIP_DESCRIPTOR_ERROR 11

/**
 * The VI is in another state.
 */
#define VIP_INVALID_STATE 12

/**
 * The name service was not begun, or does not know the name.
 */
#define VIP_ERROR_NAMESERVICE 13

/**
 * Nobody waits for the connection.
 */
#define VIP_NO_MATCH 14

/**
 * There is no such host, or its process is gone.
 */
#define VIP_NOT_REACHABLE 15

/**
 * This is not offered.
 */
#define VIP_ERROR_NOT_SUPPORTED 16

/**
 * Not connected.
 */
#define VIP_STATE_IDLE 0

/**
 * Connected.
 */
#define VIP_STATE_CONNECTED 1

/**
 * A connection was asked for.
 */
#define VIP_STATE_CONNECT_PENDING 2

/**
 * The connection has failed; VipDisconnect() ends this state.
 */
#define VIP_STATE_ERROR 3

/**
 * A descriptor does not lie in memory that was registered as its queue needs it.
 */
#define VIP_ERROR_POST_DESC 0

/**
 * A connection has ended, and this side has not ended it.
 */
#define VIP_ERROR_CONN_LOST 1

/**
 * A message has found no descriptor.
 */
#define VIP_ERROR_RECVQ_EMPTY 2

/**
 * A completion queue was full.
 */
#define VIP_ERROR_VI_OVERRUN 3

/**
 * The other side has tried to write to memory that is not open to it.
 */
#define VIP_ERROR_RDMAW_PROT 4

/**
 * Data of an RDMA write were broken. Not reported by Portolan, which repairs them.
 */
#define VIP_ERROR_RDMAW_DATA 5

/**
 * An RDMA write has ended early. Not reported by Portolan.
 */
#define VIP_ERROR_RDMAW_ABORT 6

/**
 * The other side has tried to read memory that is not open to it.
 */
#define VIP_ERROR_RDMAR_PROT 7

/**
 * A completion could not be told. Not reported by Portolan.
 */
#define VIP_ERROR_COMP_PROT 8

/**
 * RDMA could not be carried. Not reported by Portolan.
 */
#define VIP_ERROR_RDMA_TRANSPORT 9

/**
 * Nothing works any more.
 */
#define VIP_ERROR_CATASTROPHIC 10

/**
 * The NIC.
 */
#define VIP_RESOURCE_NIC 0

/**
 * A VI.
 */
#define VIP_RESOURCE_VI 1

/**
 * A completion queue.
 */
#define VIP_RESOURCE_CQ 2

/**
 * A descriptor.
 */
#define VIP_RESOURCE_DESCRIPTOR 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens the NIC, and joins the job when it is first called. `DeviceName` is "VINIC" or "VINIC0".
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipOpenNic(const char *DeviceName, VIP_NIC_HANDLE *NicHandle);

/**
 * Closes the NIC for this handle. What was made by it ends: connections are ended, VIs, completion queues,
 * protection tags and registrations are gone.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);

/**
 * `NicAttributes` gets what the NIC is like. The address that it names is there as long as the process.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle,
                       VIP_NIC_ATTRIBUTES *NicAttributes);

/**
 * What the management of the network would tell; there is none here.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NOT_SUPPORTED.
 */
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle,
                                        VIP_ULONG InfoType,
                                        void *SysManInfo);

/**
 * Why the last function that failed on this thread did so: a sentence, empty before the first failure and
 * valid until the next one. Not in the original.
 */
const char *VipLastError(void);

/**
 * Makes a protection tag: memory and VIs with the same one belong together.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *ProtectionTag);

/**
 * Ends a protection tag that neither memory nor VIs have any more.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE when it is in use.
 */
VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE ProtectionTag);

/**
 * Registers `Length` bytes: descriptors may name them and lie in them, and other processes may write and
 * read them as far as the attributes, and those of the VI, say so. Costs an entry in a table.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle,
                          void *VirtualAddress,
                          VIP_ULONG Length,
                          const VIP_MEM_ATTRIBUTES *MemAttributes,
                          VIP_MEM_HANDLE *MemHandle);

/**
 * Ends a registration. From then on nobody touches the memory through it.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle,
                            void *VirtualAddress,
                            VIP_MEM_HANDLE MemHandle);

/**
 * `MemAttributes` gets the attributes of registered memory.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle,
                       void *VirtualAddress,
                       VIP_MEM_HANDLE MemHandle,
                       VIP_MEM_ATTRIBUTES *MemAttributes);

/**
 * Changes the attributes of registered memory.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG.
 */
VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle,
                               void *VirtualAddress,
                               VIP_MEM_HANDLE MemHandle,
                               const VIP_MEM_ATTRIBUTES *MemAttributes);

/**
 * Makes a VI, idle. What ends on its queues is told to completion queues if `SendCQHandle` and
 * `RecvCQHandle` are not null.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_PTAG,
 * VIP_INVALID_RDMAREAD, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle,
                       const VIP_VI_ATTRIBUTES *ViAttributes,
                       VIP_CQ_HANDLE SendCQHandle,
                       VIP_CQ_HANDLE RecvCQHandle,
                       VIP_VI_HANDLE *ViHandle);

/**
 * Destroys an idle VI, whose queues are empty.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_ERROR_RESOURCE when descriptors are on a queue.
 */
VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);

/**
 * `State`, `ViAttributes`, and whether there is nothing on the send and on the receive queue. Each pointer
 * may be null.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle,
                      VIP_VI_STATE *State,
                      VIP_VI_ATTRIBUTES *ViAttributes,
                      VIP_BOOLEAN *SendQEmpty,
                      VIP_BOOLEAN *RecvQEmpty);

/**
 * Changes the attributes of an idle VI.
 *
 * Errors: those of VipCreateVi(), and VIP_INVALID_STATE.
 */
VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, const VIP_VI_ATTRIBUTES *ViAttributes);

/**
 * Waits for a request for a connection to `LocalAddr`, for `Timeout` milliseconds or VIP_INFINITE.
 * `RemoteAddr`, `RemoteViAttributes` and `ConnHandle` get what is known of it; the place for the address must
 * be large enough for the longest one. VipConnectAccept() or VipConnectReject() answers.
 *
 * Errors: VIP_TIMEOUT, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle,
                          const VIP_NET_ADDRESS *LocalAddr,
                          VIP_ULONG Timeout,
                          VIP_NET_ADDRESS *RemoteAddr,
                          VIP_VI_ATTRIBUTES *RemoteViAttributes,
                          VIP_CONN_HANDLE *ConnHandle);

/**
 * Accepts a connection, for an idle VI with the same reliability level, greatest transfer and quality of
 * service as the other one has. If it differs, the other side is not told: accept by another VI, or reject.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU,
 * VIP_INVALID_QOS, VIP_TIMEOUT when the other side waits no more.
 */
VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle,
                            VIP_VI_HANDLE ViHandle);

/**
 * Rejects a connection.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);

/**
 * Asks for a connection with who waits at `RemoteAddr`, for `Timeout` milliseconds or VIP_INFINITE.
 * `RemoteViAttributes` gets the attributes of the other VI; it may be null.
 *
 * Errors: VIP_REJECT, VIP_NO_MATCH when nobody waits there, VIP_TIMEOUT, VIP_NOT_REACHABLE,
 * VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle,
                             const VIP_NET_ADDRESS *LocalAddr,
                             const VIP_NET_ADDRESS *RemoteAddr,
                             VIP_ULONG Timeout,
                             VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Asks for a connection with a VI whose program asks for one with this: of the one the local address is the
 * remote one of the other. Does not wait; VipConnectPeerDone() and VipConnectPeerWait() tell the end, which
 * comes after `Timeout` milliseconds at the latest.
 *
 * Errors: VIP_NOT_REACHABLE, VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle,
                                 const VIP_NET_ADDRESS *LocalAddr,
                                 const VIP_NET_ADDRESS *RemoteAddr,
                                 VIP_ULONG Timeout);

/**
 * Whether a connection with a peer has come about: VIP_NOT_DONE while it has not.
 *
 * Errors: VIP_TIMEOUT, VIP_NOT_REACHABLE, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS,
 * VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle,
                              VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Waits until a connection with a peer has come about, as long as its request said.
 *
 * Errors: those of VipConnectPeerDone().
 */
VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Ends a connection, a request for one, or the state that a failed one has left: the VI is idle. Descriptors
 * that have not ended do so, with VIP_STATUS_DESC_FLUSHED_ERROR.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);

/**
 * Puts a descriptor, which lies in memory with handle `MemoryHandle`, on the send queue of a VI. It is the
 * library's, with the memory that it names, until it has ended. On a VI that is not connected it ends at
 * once, flushed.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when the queue is full, VIP_NOT_REACHABLE.
 */
VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle,
                       VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);

/**
 * The same for the receive queue, at any time: on an idle VI it waits for a connection.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle,
                       VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);

/**
 * Takes the first descriptor of the send queue if it has ended; its status tells how.
 *
 * Errors: VIP_NOT_DONE; VIP_DESCRIPTOR_ERROR when it has ended with an error, or with null in place of a
 * descriptor when there is none; VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle,
                       VIP_DESCRIPTOR **DescriptorPtr);

/**
 * The same for the receive queue.
 *
 * Errors: those of VipSendDone().
 */
VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Waits until the first descriptor of the send queue has ended, and takes it: for `Timeout` milliseconds, or
 * with VIP_INFINITE as long as it takes.
 *
 * Errors: VIP_TIMEOUT, and those of VipSendDone().
 */
VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle,
                       VIP_ULONG Timeout,
                       VIP_DESCRIPTOR **DescriptorPtr);

/**
 * The same for the receive queue.
 *
 * Errors: VIP_TIMEOUT, and those of VipSendDone().
 */
VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Calls `Handler` once, from a thread of the library's, with the next descriptor of the send queue that has
 * ended, which it takes. Calls for more wait in the order in which they were asked for.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle,
                         void *Context,
                         VIP_WORK_HANDLER Handler);

/**
 * The same for the receive queue.
 *
 * Errors: those of VipSendNotify().
 */
VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, void *Context, VIP_WORK_HANDLER Handler);

/**
 * Makes a completion queue. When more than `EntryCount` entries wait in it, those that come are lost, which
 * is an asynchronous error.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle,
                       VIP_ULONG EntryCount,
                       VIP_CQ_HANDLE *CQHandle);

/**
 * Changes how many entries a completion queue has.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when more wait in it.
 */
VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);

/**
 * Destroys a completion queue that no VI uses any more.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);

/**
 * At which VI, and whether at its receive queue, a descriptor has ended: take it by VipRecvDone() or
 * VipSendDone().
 *
 * Errors: VIP_NOT_DONE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle,
                     VIP_VI_HANDLE *ViHandle,
                     VIP_BOOLEAN *RecvQueue);

/**
 * The same, and waits for `Timeout` milliseconds, or with VIP_INFINITE as long as it takes.
 *
 * Errors: VIP_TIMEOUT, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle,
                     VIP_ULONG Timeout,
                     VIP_VI_HANDLE *ViHandle,
                     VIP_BOOLEAN *RecvQueue);

/**
 * Calls `Handler` once, from a thread of the library's, with the next entry, which it takes. Calls for more
 * entries wait in the order in which they were asked for.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle,
                       void *Context,
                       VIP_CQ_HANDLER Handler);

/**
 * Sets the function that is told of asynchronous errors; null for none. It is called from a thread of the
 * library's. Without one they are said on the standard error output, but for connections that end.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle,
                            void *Context,
                            VIP_ERROR_HANDLER Handler);

/**
 * Begins the name service of a NIC. `NSInitInfo` is null for the hosts of the job, or the path of a file
 * that gives them more names: lines `NAME HOST[:INDEX]`.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when the file cannot be read.
 */
VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle,
                     void *NSInitInfo);

/**
 * `Address`, whose `HostAddressLen` says how many bytes it has for a host, gets the address of process
 * `NameIndex` of host `Name`; its discriminator is left as it is.
 *
 * Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle,
                              const char *Name,
                              VIP_NET_ADDRESS *Address,
                              VIP_ULONG NameIndex);

/**
 * `Name`, which has `*NameLen` bytes, gets the name of the process at an address; `*NameLen` gets the bytes
 * that this takes, with the zero at the end.
 *
 * Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when there is too little room.
 */
VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle,
                              const VIP_NET_ADDRESS *Address,
                              char *Name,
                              VIP_ULONG *NameLen);

/**
 * Ends the name service of a NIC.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when it was not begun.
 */
VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VIPL_H */
