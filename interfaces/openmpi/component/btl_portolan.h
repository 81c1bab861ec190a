/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Open MPI's component btl/portolan: declarations that its files share.
 *
 * The component has one module with one endpoint of Portolan. A fragment is an active message with the BTL's tag.
 * Long messages and windows use remote memory. Open MPI's headers describe the interface (opal/mca/btl/btl.h). */
#ifndef BTL_PORTOLAN_H
#define BTL_PORTOLAN_H

#include "opal_config.h"
#include "opal/class/opal_free_list.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/util/proc.h"

#include "portolan_btl.h"

/* BTL 3.1 is that of Open MPI 4.1, BTL 3.3 that of Open MPI 5.0. */
#if BTL_VERSION == 310
#include "opal/mca/pmix/pmix.h"
#define PORTOLAN_MODEX_SCOPE OPAL_PMIX_GLOBAL
/* Open MPI 4.1 expects the completion of a put when the bytes have arrived, so it has no such flag. */
#define PORTOLAN_FLAG_REMOTE_COMPLETION 0
#elif BTL_VERSION == 330
#include "opal/mca/pmix/pmix-internal.h"
#define PORTOLAN_MODEX_SCOPE PMIX_GLOBAL
#define PORTOLAN_FLAG_REMOTE_COMPLETION MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION
#else
#error "this component is for BTL 3.1 (Open MPI 4.1) and BTL 3.3 (Open MPI 5.0)"
#endif

/* Longest fragment. Portolan sends messages of this length without a request to the receiver (P4.5). */
#define PORTOLAN_FRAGMENT_LEN_MAX (64 * 1024)

/* Fragments up to this length (headers, short messages) come from a list of their own, which saves memory. */
#define PORTOLAN_SHORT_LEN_MAX 1024

/* A peer. Freed when the module is finalized, not when the peer is removed: operations in flight name it. */
struct mca_btl_base_endpoint_t {
    uint32_t peer;
    /* Null once the peer is removed. */
    opal_proc_t *proc;
    /* Set once the failure of the peer was reported. */
    bool has_failed;
    /* Next removed peer. */
    struct mca_btl_base_endpoint_t *next;
};

/* Key that a peer needs to access registered memory. */
struct mca_btl_base_registration_handle_t {
    uint64_t key;
};

/* A fragment to send. Its bytes follow the structure. */
typedef struct {
    mca_btl_base_descriptor_t base;
    mca_btl_base_segment_t segment;
    struct mca_btl_base_endpoint_t *endpoint;
    /* Free list that owns the fragment. */
    opal_free_list_t *list;
} portolan_fragment_t;

OBJ_CLASS_DECLARATION(portolan_fragment_t);

/* An operation on memory of a peer. */
typedef struct {
    opal_free_list_item_t super;
    mca_btl_base_rdma_completion_fn_t done;
    struct mca_btl_base_endpoint_t *endpoint;
    void *local;
    mca_btl_base_registration_handle_t *handle;
    void *context;
    void *data;
} portolan_remote_t;

OBJ_CLASS_DECLARATION(portolan_remote_t);

/* The module. Open MPI casts pointers to its first field. */
typedef struct {
    mca_btl_base_module_t super;
    portolan_btl_t *endpoint;
    /* Called once for each peer that is lost. It aborts the job, unless the job tolerates failed processes. */
    mca_btl_base_module_error_cb_fn_t on_error;
    struct mca_btl_base_endpoint_t *removed;
    /* Set once anything was sent or has arrived. Until then, `progress` polls rarely. */
    bool has_traffic;
    opal_free_list_t short_fragments;
    opal_free_list_t long_fragments;
    opal_free_list_t remotes;
} portolan_module_t;

extern portolan_module_t portolan_module;
extern mca_btl_base_component_3_0_0_t mca_btl_portolan_component;

/* module.c */
void portolan_report_failed_peer(portolan_module_t *module, struct mca_btl_base_endpoint_t *endpoint, const char *why);

/* send.c */
mca_btl_base_descriptor_t *portolan_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                          uint8_t order, size_t size, uint32_t flags);
int portolan_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *portolan_prepare_src(mca_btl_base_module_t *btl,
                                                struct mca_btl_base_endpoint_t *endpoint,
                                                opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                size_t *size, uint32_t flags);
int portolan_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int portolan_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                   opal_convertor_t *convertor, void *header, size_t header_size, size_t payload_size,
                   uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t **descriptor);
void portolan_on_message(void *user, uint8_t tag, const void *bytes, size_t len);
void portolan_on_sent(portolan_fragment_t *fragment, int status);

/* remote.c */
mca_btl_base_registration_handle_t *portolan_register_mem(mca_btl_base_module_t *btl,
                                                          struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                          size_t size, uint32_t flags);
int portolan_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);
int portolan_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                 uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                 mca_btl_base_rdma_completion_fn_t done, void *context, void *data);
int portolan_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                 uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                 mca_btl_base_rdma_completion_fn_t done, void *context, void *data);
int portolan_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote,
                       mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                       uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t done,
                       void *context, void *data);
int portolan_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                        uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                        mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                        uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t done,
                        void *context, void *data);
int portolan_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                          uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                          mca_btl_base_registration_handle_t *remote_handle, uint64_t compare, uint64_t value,
                          int flags, int order, mca_btl_base_rdma_completion_fn_t done, void *context,
                          void *data);
void portolan_on_remote(portolan_remote_t *remote, int status);

/* Translates a result of portolan_btl.h into Open MPI's. */
static inline int portolan_result(int status)
{
    switch (status) {
    case PORTOLAN_BTL_DONE:
    case PORTOLAN_BTL_OK:
        return OPAL_SUCCESS;
    case PORTOLAN_BTL_AGAIN:
        return OPAL_ERR_OUT_OF_RESOURCE;
    case PORTOLAN_BTL_GONE:
        return OPAL_ERR_UNREACH;
    default:
        return OPAL_ERROR;
    }
}

#endif
