/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* VIPL, the programming interface of the Virtual Interface Architecture, on Portolan.
 *
 * Generated from heritage/vipl by cbindgen: do not edit. docs/reference/heritage.md names
 * the choices that were made where the original is unknown. */

#ifndef VIPL_H
#define VIPL_H

#include <stddef.h>
#include <stdint.h>

/**
 * The descriptor is a send or a receive.
 */
#define VIP_CONTROL_OP_SENDRECV 0

/**
 * The descriptor writes to the memory of the other side.
 */
#define VIP_CONTROL_OP_RDMAWRITE 1

/**
 * The descriptor reads the memory of the other side.
 */
#define VIP_CONTROL_OP_RDMAREAD 2

/**
 * Mask of the bits that select the operation.
 */
#define VIP_CONTROL_OP_MASK 3

/**
 * The message carries immediate data.
 */
#define VIP_CONTROL_IMMEDIATE 4

/**
 * The descriptor waits until all earlier RDMA reads have completed.
 */
#define VIP_CONTROL_QFENCE 8

/**
 * Mask of the reserved control bits.
 */
#define VIP_CONTROL_RESERVED 65520

/**
 * Alignment of a descriptor, in bytes.
 */
#define VIP_DESCRIPTOR_ALIGNMENT 64

/**
 * Mask of the reserved status bits.
 */
#define VIP_STATUS_RESERVED 4293983744

/**
 * The descriptor has completed.
 */
#define VIP_STATUS_DONE 1

/**
 * The descriptor is malformed.
 */
#define VIP_STATUS_FORMAT_ERROR 2

/**
 * The descriptor's memory is not registered, or has another protection tag.
 */
#define VIP_STATUS_PROTECTION_ERROR 4

/**
 * The descriptor is too long, or shorter than the message that has arrived.
 */
#define VIP_STATUS_LENGTH_ERROR 8

/**
 * A part of the data was transferred.
 */
#define VIP_STATUS_PARTIAL_ERROR 16

/**
 * The descriptor was flushed because the connection has ended.
 */
#define VIP_STATUS_DESC_FLUSHED_ERROR 32

/**
 * The other side has failed or exited.
 */
#define VIP_STATUS_TRANSPORT_ERROR 64

/**
 * The other side does not permit access to that memory.
 */
#define VIP_STATUS_RDMA_PROT_ERROR 128

/**
 * The other side had no descriptor for the message, or an unusable one.
 */
#define VIP_STATUS_REMOTE_DESC_ERROR 256

/**
 * Mask of all errors.
 */
#define VIP_STATUS_ERROR_MASK 510

/**
 * The completed descriptor is a send.
 */
#define VIP_STATUS_OP_SEND 0

/**
 * The completed descriptor is a receive.
 */
#define VIP_STATUS_OP_RECEIVE 65536

/**
 * The completed descriptor is an RDMA write.
 */
#define VIP_STATUS_OP_RDMA_WRITE 131072

/**
 * The completed descriptor is a receive that an RDMA write of the other side has consumed for its
 * immediate data.
 */
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 196608

/**
 * The completed descriptor is an RDMA read.
 */
#define VIP_STATUS_OP_RDMA_READ 262144

/**
 * Mask of the bits that identify the operation.
 */
#define VIP_STATUS_OP_MASK 458752

/**
 * Immediate data has arrived with the message.
 */
#define VIP_STATUS_IMMEDIATE 524288

/**
 * Messages may be lost. A send completes when it has left.
 */
#define VIP_SERVICE_UNRELIABLE 1

/**
 * Messages arrive once and in order. A send completes when it has arrived.
 */
#define VIP_SERVICE_RELIABLE_DELIVERY 2

/**
 * Messages arrive once and in order. A send completes when it is in the receiver's memory.
 */
#define VIP_SERVICE_RELIABLE_RECEPTION 4

/**
 * Discovery of other hosts.
 */
#define VIP_SMI_AUTODISCOVERY 1

/**
 * An infinite timeout.
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
 * The result of a function.
 */
typedef int VIP_RETURN;

/**
 * A NIC, returned by VipOpenNic().
 */
typedef void *VIP_NIC_HANDLE;

/**
 * An unsigned integer with the size of a pointer.
 */
typedef unsigned long VIP_ULONG;

/**
 * A boolean.
 */
typedef int VIP_BOOLEAN;

/**
 * One reliability level, or a set of them.
 */
typedef uint16_t VIP_RELIABILITY_LEVEL;

/**
 * The attributes of a NIC.
 */
typedef struct {
  /**
   * Name of the NIC.
   */
  char Name[64];
  /**
   * Version of the hardware, which does not exist here.
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
   * Address of this process, in memory of the library that is valid until the process exits.
   */
  const uint8_t *LocalNicAddress;
  /**
   * VIP_TRUE: any thread may call any function.
   */
  VIP_BOOLEAN ThreadSafe;
  /**
   * Maximum bytes of a discriminator.
   */
  uint16_t MaxDiscriminatorLen;
  /**
   * Maximum bytes of registered memory.
   */
  VIP_ULONG MaxRegisterBytes;
  /**
   * Maximum number of registered regions.
   */
  VIP_ULONG MaxRegisterRegions;
  /**
   * Maximum bytes of a region.
   */
  VIP_ULONG MaxRegisterBlockBytes;
  /**
   * Maximum number of VIs.
   */
  VIP_ULONG MaxVI;
  /**
   * Maximum number of descriptors on a queue.
   */
  VIP_ULONG MaxDescriptorsPerQueue;
  /**
   * Maximum number of segments of a descriptor.
   */
  VIP_ULONG MaxSegmentsPerDesc;
  /**
   * Maximum number of completion queues.
   */
  VIP_ULONG MaxCQ;
  /**
   * Maximum number of entries of a completion queue.
   */
  VIP_ULONG MaxCQEntries;
  /**
   * Maximum bytes of a transfer.
   */
  VIP_ULONG MaxTransferSize;
  /**
   * Bytes that travel in one piece.
   */
  VIP_ULONG NativeMTU;
  /**
   * Maximum number of protection tags.
   */
  VIP_ULONG MaxPtags;
  /**
   * Supported reliability levels.
   */
  VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
  /**
   * Reliability levels that support RDMA read.
   */
  VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

/**
 * A protection tag, returned by VipCreatePtag().
 */
typedef void *VIP_PROTECTION_HANDLE;

/**
 * The attributes of registered memory.
 */
typedef struct {
  /**
   * Protection tag of the VIs that may use it.
   */
  VIP_PROTECTION_HANDLE Ptag;
  /**
   * VIP_TRUE to let other processes write to it.
   */
  VIP_BOOLEAN EnableRdmaWrite;
  /**
   * VIP_TRUE to let other processes read it.
   */
  VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

/**
 * Registered memory, returned by VipRegisterMem().
 */
typedef uint32_t VIP_MEM_HANDLE;

/**
 * A quality of service. Any value is allowed, but both sides of a connection need the same.
 */
typedef void *VIP_QOS;

/**
 * The attributes of a VI.
 */
typedef struct {
  /**
   * One of VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
   * VIP_SERVICE_RELIABLE_RECEPTION.
   */
  VIP_RELIABILITY_LEVEL ReliabilityLevel;
  /**
   * Maximum bytes of a transfer.
   */
  VIP_ULONG MaxTransferSize;
  /**
   * The quality of service.
   */
  VIP_QOS QoS;
  /**
   * Protection tag of the memory that the VI uses.
   */
  VIP_PROTECTION_HANDLE Ptag;
  /**
   * VIP_TRUE to let the other side write to memory.
   */
  VIP_BOOLEAN EnableRdmaWrite;
  /**
   * VIP_TRUE to let the other side read memory.
   */
  VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

/**
 * A completion queue, returned by VipCreateCQ().
 */
typedef void *VIP_CQ_HANDLE;

/**
 * A VI, returned by VipCreateVi().
 */
typedef void *VIP_VI_HANDLE;

/**
 * The state of a VI.
 */
typedef int VIP_VI_STATE;

/**
 * An address: `HostAddressLen` bytes of the host, followed by `DiscriminatorLen` bytes that
 * identify a service. More bytes follow in memory than the array declares.
 */
typedef struct {
  /**
   * Bytes of the host address.
   */
  uint16_t HostAddressLen;
  /**
   * Bytes of the discriminator, which follows the host address.
   */
  uint16_t DiscriminatorLen;
  /**
   * Host address and discriminator.
   */
  uint8_t HostAddress[1];
} VIP_NET_ADDRESS;

/**
 * A connection request, returned by VipConnectWait().
 */
typedef void *VIP_CONN_HANDLE;

/**
 * An address in 64 bits.
 */
typedef union {
  /**
   * The address as an integer.
   */
  uint64_t AddressBits;
  /**
   * The address as a pointer.
   */
  void *Address;
} VIP_PVOID64;

/**
 * The first part of a descriptor.
 */
typedef struct {
  /**
   * Ignored: the library keeps the queues.
   */
  VIP_PVOID64 Next;
  /**
   * Ignored.
   */
  VIP_MEM_HANDLE NextHandle;
  /**
   * Number of segments that follow, including the address segment.
   */
  uint16_t SegCount;
  /**
   * VIP_CONTROL_ bits.
   */
  uint16_t Control;
  /**
   * Reserved, 0.
   */
  uint32_t Reserved;
  /**
   * Immediate data, sent with the message.
   */
  uint32_t ImmediateData;
  /**
   * Bytes of all data segments. In a completed receive, the bytes that have arrived.
   */
  uint32_t Length;
  /**
   * VIP_STATUS_ bits, written when the descriptor completes.
   */
  uint32_t Status;
} VIP_CONTROL_SEGMENT;

/**
 * Remote memory of an RDMA operation.
 */
typedef struct {
  /**
   * Address in the other process.
   */
  VIP_PVOID64 Data;
  /**
   * Handle of the memory in the other process.
   */
  VIP_MEM_HANDLE Handle;
  /**
   * Reserved, 0.
   */
  uint32_t Reserved;
} VIP_ADDRESS_SEGMENT;

/**
 * A piece of memory.
 */
typedef struct {
  /**
   * Start of the memory.
   */
  VIP_PVOID64 Data;
  /**
   * Handle of the memory.
   */
  VIP_MEM_HANDLE Handle;
  /**
   * Length in bytes.
   */
  uint32_t Length;
} VIP_DATA_SEGMENT;

/**
 * A segment of either kind.
 */
typedef union {
  /**
   * An address segment, the first segment of an RDMA operation.
   */
  VIP_ADDRESS_SEGMENT Remote;
  /**
   * A data segment.
   */
  VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

/**
 * A descriptor. It is aligned to 64 bytes. More segments follow in memory if `CS.SegCount` is
 * greater than 2.
 */
typedef struct {
  /**
   * Operation and status.
   */
  VIP_CONTROL_SEGMENT CS;
  /**
   * The first segments.
   */
  VIP_DESCRIPTOR_SEGMENT DS[2];
} VIP_DESCRIPTOR;

/**
 * Function of the program that is called when a descriptor has completed.
 */
typedef void (*VIP_WORK_HANDLER)(void *context,
                                 VIP_NIC_HANDLE nic,
                                 VIP_VI_HANDLE vi,
                                 VIP_DESCRIPTOR *descriptor);

/**
 * Function of the program that is called with a completion.
 */
typedef void (*VIP_CQ_HANDLER)(void *context,
                               VIP_NIC_HANDLE nic,
                               VIP_VI_HANDLE vi,
                               VIP_BOOLEAN is_receive);

/**
 * The kind of object to which an asynchronous error refers.
 */
typedef unsigned int VIP_RESOURCE_CODE;

/**
 * The cause of an asynchronous error.
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
   * VIP_STATUS_OP_ bits of the operation.
   */
  VIP_ULONG OpCode;
  /**
   * Kind of the object that is affected.
   */
  VIP_RESOURCE_CODE ResourceCode;
  /**
   * Cause of the error.
   */
  VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/**
 * Function of the program that is called when an asynchronous error occurs.
 */
typedef void (*VIP_ERROR_HANDLER)(void *context, VIP_ERROR_DESCRIPTOR *error);

/**
 * Addresses in reach, as VIP_SMI_AUTODISCOVERY would return them. This library discovers none: the
 * name service has the hosts of the job.
 */
typedef struct {
  /**
   * Maximum number of hops.
   */
  VIP_ULONG NumberOfHops;
  /**
   * The addresses.
   */
  VIP_NET_ADDRESS *ADAddrArray;
  /**
   * Number of addresses.
   */
  VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/**
 * Another name of VIP_WORK_HANDLER.
 */
typedef VIP_WORK_HANDLER VIP_VI_CALLBACK;

/**
 * Another name of VIP_CQ_HANDLER.
 */
typedef VIP_CQ_HANDLER VIP_CQ_CALLBACK;

/**
 * An address.
 */
typedef void *VIP_PVOID;

/**
 * A character.
 */
typedef char VIP_CHAR;

/**
 * A character as a number.
 */
typedef unsigned char VIP_UCHAR;

/**
 * A short number.
 */
typedef unsigned short VIP_USHORT;

/**
 * A number of 8 bits.
 */
typedef uint8_t VIP_UINT8;

/**
 * A number of 16 bits.
 */
typedef uint16_t VIP_UINT16;

/**
 * A number of 32 bits.
 */
typedef uint32_t VIP_UINT32;

/**
 * A number of 64 bits.
 */
typedef uint64_t VIP_UINT64;

/**
 * Success.
 */
#define VIP_SUCCESS 0

/**
 * The operation is not complete.
 */
#define VIP_NOT_DONE 1

/**
 * An argument is invalid.
 */
#define VIP_INVALID_PARAMETER 2

/**
 * A resource is exhausted or in use.
 */
#define VIP_ERROR_RESOURCE 3

/**
 * The timeout has expired.
 */
#define VIP_TIMEOUT 4

/**
 * The other side has rejected the connection.
 */
#define VIP_REJECT 5

/**
 * The reliability levels of the two VIs differ, or the level is invalid.
 */
#define VIP_INVALID_RELIABILITY_LEVEL 6

/**
 * The maximum transfer sizes of the two VIs differ, or the size is too large.
 */
#define VIP_INVALID_MTU 7

/**
 * The qualities of service of the two VIs differ.
 */
#define VIP_INVALID_QOS 8

/**
 * The protection tag does not exist.
 */
#define VIP_INVALID_PTAG 9

/**
 * RDMA read requires a reliable VI.
 */
#define VIP_INVALID_RDMAREAD 10

/**
 * A descriptor has completed with an error, which its status contains.
 */
#define VIP_DESCRIPTOR_ERROR 11

/**
 * The VI is in the wrong state.
 */
#define VIP_INVALID_STATE 12

/**
 * The name service is not initialized, or has no such name.
 */
#define VIP_ERROR_NAMESERVICE 13

/**
 * No process waits for the connection.
 */
#define VIP_NO_MATCH 14

/**
 * The host does not exist, or its process has failed or exited.
 */
#define VIP_NOT_REACHABLE 15

/**
 * The function is not supported.
 */
#define VIP_ERROR_NOT_SUPPORTED 16

/**
 * The VI is not connected.
 */
#define VIP_STATE_IDLE 0

/**
 * The VI is connected.
 */
#define VIP_STATE_CONNECTED 1

/**
 * A connection was requested.
 */
#define VIP_STATE_CONNECT_PENDING 2

/**
 * The connection has failed. VipDisconnect() makes the VI idle again.
 */
#define VIP_STATE_ERROR 3

/**
 * A descriptor is not in memory that is registered for its queue.
 */
#define VIP_ERROR_POST_DESC 0

/**
 * A connection has ended, but not by a call on this side.
 */
#define VIP_ERROR_CONN_LOST 1

/**
 * A message has arrived without a posted descriptor.
 */
#define VIP_ERROR_RECVQ_EMPTY 2

/**
 * A completion queue was full.
 */
#define VIP_ERROR_VI_OVERRUN 3

/**
 * The other side has tried to write to memory without permission.
 */
#define VIP_ERROR_RDMAW_PROT 4

/**
 * Data of an RDMA write was corrupted. Not reported by Portolan, which retransmits such data.
 */
#define VIP_ERROR_RDMAW_DATA 5

/**
 * An RDMA write was aborted. Not reported by Portolan.
 */
#define VIP_ERROR_RDMAW_ABORT 6

/**
 * The other side has tried to read memory without permission.
 */
#define VIP_ERROR_RDMAR_PROT 7

/**
 * A completion could not be written. Not reported by Portolan.
 */
#define VIP_ERROR_COMP_PROT 8

/**
 * RDMA data could not be transported. Not reported by Portolan.
 */
#define VIP_ERROR_RDMA_TRANSPORT 9

/**
 * No further operation is possible.
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
 * Opens the NIC. The first call joins the job. `DeviceName` is "VINIC", "VINIC0" or the path of a
 * device below /dev, which need not exist.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipOpenNic(const char *DeviceName, VIP_NIC_HANDLE *NicHandle);

/**
 * Closes a handle of the NIC. Its connections are ended. Its VIs, completion queues, protection
 * tags and registrations are destroyed.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);

/**
 * Stores the attributes of the NIC in `NicAttributes`. The address in it is valid until the
 * process exits.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *NicAttributes);

/**
 * Returns information of the network's management, which Portolan does not have.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NOT_SUPPORTED.
 */
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle,
                                        VIP_ULONG InfoType,
                                        void *SysManInfo);

/**
 * Returns a description of the last error of this thread. It is a sentence, empty before the first
 * error and valid until the next one. Not in the original.
 */
const char *VipLastError(void);

/**
 * Creates a protection tag. A VI may only use memory with the same tag.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *ProtectionTag);

/**
 * Destroys a protection tag that no memory or VI uses.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE when it is in use.
 */
VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE ProtectionTag);

/**
 * Registers `Length` bytes of memory. Descriptors may be placed in it and refer to it. Other
 * processes may write and read it as far as the attributes of the memory and of the VI permit. The
 * cost is one table entry.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle,
                          void *VirtualAddress,
                          VIP_ULONG Length,
                          const VIP_MEM_ATTRIBUTES *MemAttributes,
                          VIP_MEM_HANDLE *MemHandle);

/**
 * Deregisters memory. From then on no transfer accesses the memory through this registration: waits
 * for long transfers in flight.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle,
                            void *VirtualAddress,
                            VIP_MEM_HANDLE MemHandle);

/**
 * Stores the attributes of registered memory in `MemAttributes`.
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
 * Creates an idle VI. Completions of its queues are also added to the completion queues
 * `SendCQHandle` and `RecvCQHandle`, unless these are null.
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
 * Destroys an idle VI with empty queues.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_ERROR_RESOURCE when descriptors are on a
 * queue.
 */
VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);

/**
 * Stores the state and the attributes of a VI. `SendQEmpty` and `RecvQEmpty` receive VIP_TRUE if
 * the queue is empty. Each pointer may be null.
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
 * Waits for a connection request to `LocalAddr`, for `Timeout` milliseconds or VIP_INFINITE.
 * Address and attributes of the requester are stored in `RemoteAddr` and `RemoteViAttributes`, and
 * the request in `ConnHandle`. `RemoteAddr` must have room for the longest address. Answer the
 * request with VipConnectAccept() or VipConnectReject().
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
 * Accepts a connection request for an idle VI. The VI must have the reliability level, maximum
 * transfer size and quality of service of the requester's VI. If they differ, the request stays
 * open: accept it with another VI, or reject it.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_INVALID_RELIABILITY_LEVEL,
 * VIP_INVALID_MTU, VIP_INVALID_QOS, VIP_TIMEOUT when the requester has stopped waiting.
 */
VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle);

/**
 * Rejects a connection request.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);

/**
 * Requests a connection with the process that waits at `RemoteAddr`, for `Timeout` milliseconds or
 * VIP_INFINITE. `RemoteViAttributes` receives the attributes of the other VI; it may be null.
 *
 * Errors: VIP_REJECT, VIP_NO_MATCH when no process waits there, VIP_TIMEOUT, VIP_NOT_REACHABLE,
 * VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle,
                             const VIP_NET_ADDRESS *LocalAddr,
                             const VIP_NET_ADDRESS *RemoteAddr,
                             VIP_ULONG Timeout,
                             VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Requests a connection with a VI whose program requests one with this VI. The local address of
 * each must be the remote address of the other. Returns at once; VipConnectPeerDone() and
 * VipConnectPeerWait() report the result, after `Timeout` milliseconds at the latest.
 *
 * Errors: VIP_NOT_REACHABLE, VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle,
                                 const VIP_NET_ADDRESS *LocalAddr,
                                 const VIP_NET_ADDRESS *RemoteAddr,
                                 VIP_ULONG Timeout);

/**
 * Returns VIP_SUCCESS if a connection with a peer is established, and VIP_NOT_DONE while it is
 * pending.
 *
 * Errors: VIP_TIMEOUT, VIP_NOT_REACHABLE, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU,
 * VIP_INVALID_QOS, VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Waits until a connection with a peer is established, for the timeout of its request.
 *
 * Errors: those of VipConnectPeerDone().
 */
VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttributes);

/**
 * Ends a connection, a connection request, or the error state, and makes the VI idle. Pending
 * descriptors complete with VIP_STATUS_DESC_FLUSHED_ERROR.
 *
 * Errors: VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);

/**
 * Posts a descriptor to the send queue of a VI. The descriptor is in registered memory with handle
 * `MemoryHandle`. The library owns it, and the memory it refers to, until it completes. On a VI
 * that is not connected it is flushed immediately.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when the queue is full, VIP_NOT_REACHABLE.
 */
VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle,
                       VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);

/**
 * Posts a descriptor to the receive queue of a VI, as VipPostSend() does for the send queue. On an
 * idle VI it waits for a connection.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle,
                       VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);

/**
 * Removes the first descriptor of the send queue if it is complete. Its status contains the
 * result.
 *
 * Errors: VIP_NOT_DONE; VIP_DESCRIPTOR_ERROR when it has completed with an error, or with a null
 * descriptor when the queue is empty; VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Removes the first descriptor of the receive queue if it is complete.
 *
 * Errors: those of VipSendDone().
 */
VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Waits until the first descriptor of the send queue is complete, and removes it. It waits for
 * `Timeout` milliseconds or VIP_INFINITE.
 *
 * Errors: VIP_TIMEOUT, and those of VipSendDone().
 */
VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Waits until the first descriptor of the receive queue is complete, and removes it, as
 * VipSendWait() does for the send queue.
 *
 * Errors: VIP_TIMEOUT, and those of VipSendDone().
 */
VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout, VIP_DESCRIPTOR **DescriptorPtr);

/**
 * Calls `Handler` once, from a thread of the library, with the next completed descriptor of the
 * send queue, which is removed. Several calls are served in order.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, void *Context, VIP_WORK_HANDLER Handler);

/**
 * Calls `Handler` for the receive queue, as VipSendNotify() does for the send queue.
 *
 * Errors: those of VipSendNotify().
 */
VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, void *Context, VIP_WORK_HANDLER Handler);

/**
 * Creates a completion queue. When it holds `EntryCount` entries, further entries are lost and an
 * asynchronous error is reported.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE *CQHandle);

/**
 * Changes the number of entries of a completion queue.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when it holds more entries.
 */
VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);

/**
 * Destroys a completion queue that no VI uses.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);

/**
 * Removes the next entry of a completion queue. Stores the VI whose descriptor has completed, and
 * VIP_TRUE for its receive queue. Take the descriptor with VipRecvDone() or VipSendDone().
 *
 * Errors: VIP_NOT_DONE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);

/**
 * Waits for the next entry of a completion queue and removes it, as VipCQDone() does, for
 * `Timeout` milliseconds or VIP_INFINITE.
 *
 * Errors: VIP_TIMEOUT, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle,
                     VIP_ULONG Timeout,
                     VIP_VI_HANDLE *ViHandle,
                     VIP_BOOLEAN *RecvQueue);

/**
 * Calls `Handler` once, from a thread of the library, with the next entry, which is removed.
 * Several calls are served in order.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, void *Context, VIP_CQ_HANDLER Handler);

/**
 * Sets the function that is called for asynchronous errors; null removes it. It is called from a
 * thread of the library. Without a function, the errors are printed to standard error, except for
 * connections that end.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
 */
VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, void *Context, VIP_ERROR_HANDLER Handler);

/**
 * Initializes the name service of a NIC. `NSInitInfo` is null, or the path of a file with aliases
 * for the hosts of the job, in lines `NAME HOST[:INDEX]`.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when the file cannot be read.
 */
VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, void *NSInitInfo);

/**
 * Stores the address of process `NameIndex` on host `Name` in `Address`. Its `HostAddressLen`
 * contains the bytes of room for the host address. The discriminator is not changed.
 *
 * Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle,
                              const char *Name,
                              VIP_NET_ADDRESS *Address,
                              VIP_ULONG NameIndex);

/**
 * Stores the name of the process at an address in `Name`, which has room for `*NameLen` bytes.
 * `*NameLen` receives the bytes required, including the terminating zero.
 *
 * Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when the name does not
 * fit.
 */
VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle,
                              const VIP_NET_ADDRESS *Address,
                              char *Name,
                              VIP_ULONG *NameLen);

/**
 * Shuts down the name service of a NIC.
 *
 * Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when it is not initialized.
 */
VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VIPL_H */
