/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Remote memory: registration, put, get, atomic operations. All refuse remote memory without a handle, which was
 * not registered. */
#include "btl_portolan.h"

#include "opal/constants.h"

mca_btl_base_registration_handle_t *portolan_register_mem(mca_btl_base_module_t *btl,
                                                          struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                          size_t size, uint32_t flags)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    mca_btl_base_registration_handle_t *handle = malloc(sizeof(*handle));

    (void) endpoint;
    (void) flags;
    module->has_traffic = true;
    if (OPAL_UNLIKELY(NULL == handle)) {
        return NULL;
    }
    if (PORTOLAN_BTL_OK != portolan_btl_register(module->endpoint, base, size, &handle->key)) {
        free(handle);
        return NULL;
    }
    return handle;
}

int portolan_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    portolan_btl_deregister(((portolan_module_t *) btl)->endpoint, handle->key);
    free(handle);
    return OPAL_SUCCESS;
}

/* Allocates an operation that calls `done` on completion. */
static portolan_remote_t *begin(portolan_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                                mca_btl_base_rdma_completion_fn_t done, void *context, void *data)
{
    portolan_remote_t *remote = (portolan_remote_t *) opal_free_list_get(&module->remotes);

    module->has_traffic = true;
    if (OPAL_LIKELY(NULL != remote)) {
        remote->done = done;
        remote->endpoint = endpoint;
        remote->local = NULL;
        remote->handle = NULL;
        remote->context = context;
        remote->data = data;
    }
    return remote;
}

/* Frees the operation if it could not start; returns the result for Open MPI. */
static int finish_begin(portolan_module_t *module, portolan_remote_t *remote, int status)
{
    if (OPAL_UNLIKELY(PORTOLAN_BTL_GONE == status)) {
        portolan_report_failed_peer(module, remote->endpoint, portolan_btl_error());
    }
    if (OPAL_UNLIKELY(status < 0)) {
        opal_free_list_return(&module->remotes, &remote->super);
    }
    return portolan_result(status);
}

void portolan_on_remote(portolan_remote_t *remote, int status)
{
    portolan_remote_t ended = *remote;

    /* Returned first: the callback may start another operation. */
    opal_free_list_return(&portolan_module.remotes, &remote->super);
    if (NULL != ended.done) {
        ended.done(&portolan_module.super, ended.endpoint, ended.local, ended.handle, ended.context, ended.data,
                   status);
    }
}

int portolan_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                 uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                 mca_btl_base_rdma_completion_fn_t done, void *context, void *data)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    portolan_remote_t *op;

    (void) flags;
    (void) order;
    if (OPAL_UNLIKELY(NULL == remote_handle)) {
        return OPAL_ERR_BAD_PARAM;
    }
    op = begin(module, endpoint, done, context, data);
    if (OPAL_UNLIKELY(NULL == op)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    op->local = local;
    op->handle = local_handle;
    portolan_btl_transfer_t transfer = {
        .peer = endpoint->peer,
        .local = local,
        .len = size,
        .remote = remote,
        .key = remote_handle->key,
        .context = (uint64_t) (uintptr_t) op,
    };
    return finish_begin(module, op, portolan_btl_put(module->endpoint, &transfer));
}

int portolan_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                 uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                 mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                 mca_btl_base_rdma_completion_fn_t done, void *context, void *data)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    portolan_remote_t *op;

    (void) flags;
    (void) order;
    if (OPAL_UNLIKELY(NULL == remote_handle)) {
        return OPAL_ERR_BAD_PARAM;
    }
    op = begin(module, endpoint, done, context, data);
    if (OPAL_UNLIKELY(NULL == op)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    op->local = local;
    op->handle = local_handle;
    portolan_btl_transfer_t transfer = {
        .peer = endpoint->peer,
        .local = local,
        .len = size,
        .remote = remote,
        .key = remote_handle->key,
        .context = (uint64_t) (uintptr_t) op,
    };
    return finish_begin(module, op, portolan_btl_get(module->endpoint, &transfer));
}

/* Translates an atomic operation. Returns false if Portolan does not have it. */
static bool translate(mca_btl_base_atomic_op_t op, portolan_btl_op_t *to)
{
    switch (op) {
    case MCA_BTL_ATOMIC_ADD:
        *to = PORTOLAN_BTL_ADD;
        return true;
    case MCA_BTL_ATOMIC_AND:
        *to = PORTOLAN_BTL_AND;
        return true;
    case MCA_BTL_ATOMIC_OR:
        *to = PORTOLAN_BTL_OR;
        return true;
    case MCA_BTL_ATOMIC_XOR:
        *to = PORTOLAN_BTL_XOR;
        return true;
    case MCA_BTL_ATOMIC_LAND:
        *to = PORTOLAN_BTL_LAND;
        return true;
    case MCA_BTL_ATOMIC_LOR:
        *to = PORTOLAN_BTL_LOR;
        return true;
    case MCA_BTL_ATOMIC_LXOR:
        *to = PORTOLAN_BTL_LXOR;
        return true;
    case MCA_BTL_ATOMIC_SWAP:
        *to = PORTOLAN_BTL_SWAP;
        return true;
    case MCA_BTL_ATOMIC_MIN:
        *to = PORTOLAN_BTL_MIN;
        return true;
    case MCA_BTL_ATOMIC_MAX:
        *to = PORTOLAN_BTL_MAX;
        return true;
    default:
        return false;
    }
}

static portolan_btl_number_t number_of(int flags)
{
    bool is_short = 0 != (flags & MCA_BTL_ATOMIC_FLAG_32BIT);

    if (flags & MCA_BTL_ATOMIC_FLAG_FLOAT) {
        return is_short ? PORTOLAN_BTL_FLOAT : PORTOLAN_BTL_DOUBLE;
    }
    return is_short ? PORTOLAN_BTL_INT32 : PORTOLAN_BTL_INT64;
}

/* Starts `atomic`. Sets its peer and context; the caller has set the other fields. */
static int begin_atomic(portolan_module_t *module, portolan_remote_t *op,
                        mca_btl_base_registration_handle_t *local_handle, portolan_btl_atomic_t *atomic)
{
    if (OPAL_UNLIKELY(NULL == op)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    op->local = atomic->before;
    op->handle = local_handle;
    atomic->peer = op->endpoint->peer;
    atomic->context = (uint64_t) (uintptr_t) op;
    return finish_begin(module, op, portolan_btl_atomic(module->endpoint, atomic));
}

int portolan_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote,
                       mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                       uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t done,
                       void *context, void *data)
{
    return portolan_atomic_fop(btl, endpoint, NULL, remote, NULL, remote_handle, op, operand, flags, order, done,
                               context, data);
}

int portolan_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                        uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                        mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                        uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t done,
                        void *context, void *data)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    portolan_btl_atomic_t atomic = {
        .number = number_of(flags),
        .operand = operand,
        .before = local,
        .remote = remote,
    };

    (void) order;
    if (OPAL_UNLIKELY(NULL == remote_handle)) {
        return OPAL_ERR_BAD_PARAM;
    }
    if (!translate(op, &atomic.op)) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    atomic.key = remote_handle->key;
    return begin_atomic(module, begin(module, endpoint, done, context, data), local_handle, &atomic);
}

int portolan_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                          uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                          mca_btl_base_registration_handle_t *remote_handle, uint64_t compare, uint64_t value,
                          int flags, int order, mca_btl_base_rdma_completion_fn_t done, void *context, void *data)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    portolan_btl_atomic_t atomic = {
        .op = PORTOLAN_BTL_COMPARE_SWAP,
        .number = number_of(flags),
        .operand = value,
        .compare = compare,
        .before = local,
        .remote = remote,
    };

    (void) order;
    if (OPAL_UNLIKELY(NULL == remote_handle)) {
        return OPAL_ERR_BAD_PARAM;
    }
    atomic.key = remote_handle->key;
    return begin_atomic(module, begin(module, endpoint, done, context, data), local_handle, &atomic);
}
