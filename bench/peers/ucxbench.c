// SPDX-License-Identifier: MIT OR Apache-2.0
// Benchmarks of `work.h` with tagged messages of UCX (UCP). They use one polled worker of one thread. UCX chooses
// the transport within UCX_TLS and UCX_NET_DEVICES. The options -p and -a have no effect.
//
//   cc -O2 -o ucxbench bench/peers/ucxbench.c -lucp -lucs

static const char *const PROGRAM = "ucxbench";

#include "work.h"
#include <ucp/api/ucp.h>

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK)
        die(what, ucs_status_string(status));
}

static void library_open(const char *provider, const char *address, size_t len_max)
{
    (void)provider, (void)address, (void)len_max;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    check(ucp_init(&params, NULL, &context), "ucp_init");
    ucp_worker_params_t one = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    check(ucp_worker_create(context, &one, &worker), "ucp_worker_create");
}

static size_t library_name(void *name, size_t len_max)
{
    ucp_address_t *address;
    size_t len;
    check(ucp_worker_get_address(worker, &address, &len), "ucp_worker_get_address");
    if (len > len_max)
        die("the worker's address is too long", NULL);
    memcpy(name, address, len);
    ucp_worker_release_address(worker, address);
    return len;
}

static void library_connect(const void *name, size_t len)
{
    (void)len;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = name};
    check(ucp_ep_create(worker, &params, &endpoint), "ucp_ep_create");
}

static void progress(void)
{
    ucp_worker_progress(worker);
}

static void on_sent(void *request, ucs_status_t status, void *data)
{
    (void)data;
    check(status, "a send failed");
    sends_open--;
    ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *data)
{
    (void)info, (void)data;
    check(status, "a receive failed");
    receives_open--;
    ucp_request_free(request);
}

static void post_send(const void *bytes, size_t len, uint64_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = on_sent};
    sends_open++;
    ucs_status_ptr_t request = ucp_tag_send_nbx(endpoint, bytes, len, tag, &param);
    if (request == NULL)
        sends_open--;
    else if (UCS_PTR_IS_ERR(request))
        check(UCS_PTR_STATUS(request), "ucp_tag_send_nbx");
}

static void post_receive(void *bytes, size_t len, uint64_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = on_received};
    receives_open++;
    ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, bytes, len, tag, UINT64_MAX, &param);
    if (request == NULL)
        receives_open--;
    else if (UCS_PTR_IS_ERR(request))
        check(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx");
}

static void library_close(void)
{
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}
