/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The module: peers, errors, finalization, and the table of functions. */
#include "btl_portolan.h"

#include "opal/class/opal_bitmap.h"
#include "opal/constants.h"

/* Makes a process a peer. Returns NULL if it does not use this component. */
static struct mca_btl_base_endpoint_t *make_peer(portolan_module_t *module, opal_proc_t *proc)
{
    void *address = NULL;
    size_t len = 0;
    int status;

    OPAL_MODEX_RECV(status, &mca_btl_portolan_component.btl_version, &proc->proc_name, &address, &len);
    if (OPAL_SUCCESS != status || PORTOLAN_BTL_ADDRESS_LEN != len) {
        free(address);
        return NULL;
    }
    struct mca_btl_base_endpoint_t *endpoint = malloc(sizeof(*endpoint));
    if (NULL != endpoint) {
        endpoint->proc = proc;
        endpoint->has_failed = false;
        endpoint->next = NULL;
        status = portolan_btl_insert(module->endpoint, address, &endpoint->peer);
        if (PORTOLAN_BTL_OK != status) {
            BTL_ERROR(("%s", portolan_btl_error()));
            free(endpoint);
            endpoint = NULL;
        }
    }
    free(address);
    return endpoint;
}

/* All processes become peers, also this process and those of this host. vader and self have a higher exclusivity and
 * carry the messages within a host, but a window needs one BTL that reaches every process. */
static int add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    for (size_t at = 0; at < count; ++at) {
        endpoints[at] = make_peer((portolan_module_t *) btl, procs[at]);
        if (NULL != endpoints[at]) {
            opal_bitmap_set_bit(reachable, (int) at);
        }
    }
    return OPAL_SUCCESS;
}

static int del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints)
{
    portolan_module_t *module = (portolan_module_t *) btl;

    (void) procs;
    for (size_t at = 0; at < count; ++at) {
        if (NULL != endpoints[at]) {
            portolan_btl_remove(module->endpoint, endpoints[at]->peer);
            endpoints[at]->proc = NULL;
            endpoints[at]->next = module->removed;
            module->removed = endpoints[at];
        }
    }
    return OPAL_SUCCESS;
}

void portolan_report_failed_peer(portolan_module_t *module, struct mca_btl_base_endpoint_t *endpoint, const char *why)
{
    if (endpoint->has_failed || NULL == endpoint->proc) {
        return;
    }
    endpoint->has_failed = true;
    BTL_PEER_ERROR(endpoint->proc, ("%s", why));
    if (NULL != module->on_error) {
        /* pml ob1 uses the text as a format, so it is a constant. */
        module->on_error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL, endpoint->proc,
                         "a peer of btl/portolan has failed");
    }
}

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t on_error)
{
    ((portolan_module_t *) btl)->on_error = on_error;
    return OPAL_SUCCESS;
}

static int finalize(mca_btl_base_module_t *btl)
{
    portolan_module_t *module = (portolan_module_t *) btl;

    portolan_btl_close(module->endpoint);
    module->endpoint = NULL;
    while (NULL != module->removed) {
        struct mca_btl_base_endpoint_t *next = module->removed->next;
        free(module->removed);
        module->removed = next;
    }
    return OPAL_SUCCESS;
}

portolan_module_t portolan_module = {
    .super = {
        .btl_component = &mca_btl_portolan_component,
        .btl_add_procs = add_procs,
        .btl_del_procs = del_procs,
        .btl_finalize = finalize,
        .btl_alloc = portolan_alloc,
        .btl_free = portolan_free,
        .btl_prepare_src = portolan_prepare_src,
        .btl_send = portolan_send,
        .btl_sendi = portolan_sendi,
        .btl_put = portolan_put,
        .btl_get = portolan_get,
        .btl_dump = mca_btl_base_dump,
        .btl_atomic_op = portolan_atomic_op,
        .btl_atomic_fop = portolan_atomic_fop,
        .btl_atomic_cswap = portolan_atomic_cswap,
        .btl_register_mem = portolan_register_mem,
        .btl_deregister_mem = portolan_deregister_mem,
        .btl_register_error = register_error,
    },
};
