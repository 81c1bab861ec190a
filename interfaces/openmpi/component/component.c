/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The component: parameters, creation of its one module, progress.
 *
 * It offers a module only to jobs that name it among their BTLs. Installing it changes no other job. */
#include "btl_portolan.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#include "opal/constants.h"
#include "opal/mca/base/mca_base_var.h"

OBJ_CLASS_INSTANCE(portolan_remote_t, opal_free_list_item_t, NULL, NULL);

static int open_component(void)
{
    OBJ_CONSTRUCT(&portolan_module.short_fragments, opal_free_list_t);
    OBJ_CONSTRUCT(&portolan_module.long_fragments, opal_free_list_t);
    OBJ_CONSTRUCT(&portolan_module.remotes, opal_free_list_t);
    return OPAL_SUCCESS;
}

static int close_component(void)
{
    OBJ_DESTRUCT(&portolan_module.short_fragments);
    OBJ_DESTRUCT(&portolan_module.long_fragments);
    OBJ_DESTRUCT(&portolan_module.remotes);
    return OPAL_SUCCESS;
}

static int register_parameters(void)
{
    mca_btl_base_module_t *btl = &portolan_module.super;

    btl->btl_eager_limit = PORTOLAN_FRAGMENT_LEN_MAX;
    btl->btl_rndv_eager_limit = PORTOLAN_FRAGMENT_LEN_MAX;
    btl->btl_max_send_size = PORTOLAN_FRAGMENT_LEN_MAX;
    /* The receiver gets a message in one piece, so a contiguous buffer needs no pipeline. */
    btl->btl_rdma_pipeline_send_length = PORTOLAN_FRAGMENT_LEN_MAX;
    btl->btl_rdma_pipeline_frag_size = INT_MAX;
    btl->btl_min_rdma_pipeline_size = PORTOLAN_FRAGMENT_LEN_MAX;
    btl->btl_get_limit = SIZE_MAX;
    btl->btl_put_limit = SIZE_MAX;
    /* Local memory needs no registration. */
    btl->btl_get_local_registration_threshold = SIZE_MAX;
    btl->btl_put_local_registration_threshold = SIZE_MAX;
    btl->btl_registration_handle_size = sizeof(mca_btl_base_registration_handle_t);
    /* Below the exclusivity of vader and self, which carry the messages within a host. */
    btl->btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
    btl->btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS |
                     MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_COMPLETION | PORTOLAN_FLAG_REMOTE_COMPLETION;
    btl->btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND |
                            MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR |
                            MCA_BTL_ATOMIC_SUPPORTS_LAND | MCA_BTL_ATOMIC_SUPPORTS_LOR |
                            MCA_BTL_ATOMIC_SUPPORTS_LXOR | MCA_BTL_ATOMIC_SUPPORTS_SWAP |
                            MCA_BTL_ATOMIC_SUPPORTS_MIN | MCA_BTL_ATOMIC_SUPPORTS_MAX |
                            MCA_BTL_ATOMIC_SUPPORTS_32BIT | MCA_BTL_ATOMIC_SUPPORTS_FLOAT |
                            MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
    /* Open MPI compares these with other BTLs of the same peer: better than TCP, worse than vader. */
    btl->btl_latency = 4;
    btl->btl_bandwidth = 10000;
    return mca_btl_base_param_register(&mca_btl_portolan_component.btl_version, btl);
}

/* Returns true if the job names this component among its BTLs. */
static bool is_requested(void)
{
    const char **names = NULL;
    int index = mca_base_var_find("opal", "btl", NULL, NULL);

    if (index < 0 || OPAL_SUCCESS != mca_base_var_get_value(index, &names, NULL, NULL) || NULL == names ||
        NULL == *names || '^' == **names) {
        return false;
    }
    for (const char *name = *names; NULL != name; name = strchr(name, ',')) {
        name += ',' == *name;
        size_t len = strcspn(name, ",");
        if (strlen("portolan") == len && 0 == strncmp(name, "portolan", len)) {
            return true;
        }
    }
    return false;
}

static void on_done(void *user, const portolan_btl_done_t *done)
{
    portolan_module_t *module = user;
    int status = portolan_result(done->status);
    void *ended = (void *) (uintptr_t) done->context;
    struct mca_btl_base_endpoint_t *endpoint;

    endpoint = PORTOLAN_BTL_SENT == done->kind ? ((portolan_fragment_t *) ended)->endpoint
                                               : ((portolan_remote_t *) ended)->endpoint;
    if (OPAL_UNLIKELY(PORTOLAN_BTL_GONE == done->status)) {
        portolan_report_failed_peer(module, endpoint, done->why);
    }
    if (PORTOLAN_BTL_SENT == done->kind) {
        portolan_on_sent(ended, status);
    } else {
        portolan_on_remote(ended, status);
    }
}

static int make_list(opal_free_list_t *list, size_t size, opal_class_t *class)
{
    /* Grows by 32 items without a limit: fragments for a slow receiver wait here, as in other BTLs. */
    return opal_free_list_init(list, size, opal_cache_line_size, class, 0, opal_cache_line_size, 0, -1, 32, NULL,
                               0, NULL, NULL, NULL);
}

static int make_lists(portolan_module_t *module)
{
    opal_class_t *fragment = OBJ_CLASS(portolan_fragment_t);
    size_t size = sizeof(portolan_fragment_t);
    size_t long_len = module->super.btl_max_send_size;

    if (long_len < module->super.btl_eager_limit) {
        long_len = module->super.btl_eager_limit;
    }
    int status = make_list(&module->short_fragments, size + PORTOLAN_SHORT_LEN_MAX, fragment);
    if (OPAL_SUCCESS == status) {
        status = make_list(&module->long_fragments, size + long_len, fragment);
    }
    if (OPAL_SUCCESS == status) {
        status = make_list(&module->remotes, sizeof(portolan_remote_t), OBJ_CLASS(portolan_remote_t));
    }
    return status;
}

/* Publishes the address of the endpoint in the modex. */
static int publish(portolan_module_t *module)
{
    uint8_t address[PORTOLAN_BTL_ADDRESS_LEN];
    int status;

    portolan_btl_address(module->endpoint, address);
    OPAL_MODEX_SEND(status, PORTOLAN_MODEX_SCOPE, &mca_btl_portolan_component.btl_version, address,
                    sizeof(address));
    return status;
}

static mca_btl_base_module_t **init(int *count, bool progress_threads, bool mpi_threads)
{
    (void) progress_threads;
    *count = 0;
    if (!is_requested() || OPAL_SUCCESS != make_lists(&portolan_module)) {
        return NULL;
    }
    portolan_btl_hooks_t hooks = {
        .user = &portolan_module,
        .on_message = portolan_on_message,
        .on_done = on_done,
    };
    portolan_module.endpoint = portolan_btl_open(&hooks, mpi_threads);
    if (NULL == portolan_module.endpoint) {
        BTL_ERROR(("cannot open the Portolan endpoint: %s", portolan_btl_error()));
        return NULL;
    }
    mca_btl_base_module_t **modules = malloc(sizeof(*modules));
    if (NULL == modules || OPAL_SUCCESS != publish(&portolan_module)) {
        free(modules);
        portolan_btl_close(portolan_module.endpoint);
        portolan_module.endpoint = NULL;
        return NULL;
    }
    modules[0] = &portolan_module.super;
    *count = 1;
    return modules;
}

/* Returns true if an endpoint without traffic should be polled, for a peer that sends first: in one of 256 calls, and
 * once the coarse clock has advanced. On crowded cores, where a call may come after milliseconds, that is each call.
 * A job within a host uses shared memory only, and should not wait for system calls of polls. */
static bool is_due(void)
{
    static unsigned calls;
    static struct timespec polled;
    struct timespec now;

    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (0 != ++calls % 256 && now.tv_nsec == polled.tv_nsec) {
        return false;
    }
    polled = now;
    return true;
}

static int progress(void)
{
    /* Open MPI may still poll after it has finalized the module. */
    if (NULL == portolan_module.endpoint || (!portolan_module.has_traffic && !is_due())) {
        return 0;
    }
    return portolan_btl_poll(portolan_module.endpoint);
}

mca_btl_base_component_3_0_0_t mca_btl_portolan_component = {
    .btl_version = {
        MCA_BTL_DEFAULT_VERSION("portolan"),
        .mca_open_component = open_component,
        .mca_close_component = close_component,
        .mca_register_component_params = register_parameters,
    },
    .btl_data = {
        .param_field = MCA_BASE_METADATA_PARAM_NONE,
    },
    .btl_init = init,
    .btl_progress = progress,
};
