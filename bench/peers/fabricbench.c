// SPDX-License-Identifier: MIT OR Apache-2.0
// Benchmarks of `work.h` with tagged messages of libfabric. They use reliable datagram endpoints of provider
// -p, bound to address -a, one thread, manual progress, and polled completion queues.
//
//   cc -O2 -o fabricbench bench/peers/fabricbench.c -lfabric

static const char *const PROGRAM = "fabricbench";

#include "work.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum {
    // Maximum completions per call.
    BATCH = 16,
    // Maximum pending operations: a window and its acknowledgement.
    OPEN_MAX = 2 * WINDOW_MAX,
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_av *addresses;
static struct fid_cq *sent, *received;
static fi_addr_t other;
static size_t inject_len;

// Some providers store their state of an operation here.
static struct fi_context2 contexts[2][OPEN_MAX];
static unsigned int contexts_used[2];

static void check(long result, const char *what)
{
    if (result < 0)
        die(what, fi_strerror((int)-result));
}

static void *context_of(int kind)
{
    return &contexts[kind][contexts_used[kind]++ % OPEN_MAX];
}

static struct fi_info *hints_for(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL)
        die("out of memory", NULL);
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider);
    return hints;
}

static void library_open(const char *provider, const char *address, size_t len_max)
{
    struct fi_info *hints = hints_for(provider);
    const char *node = *address ? address : NULL;
    check(fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), node, NULL, node ? FI_SOURCE : 0, hints, &info),
          "libfabric has no matching endpoint");
    if (info->ep_attr->max_msg_size < len_max)
        die("the message is longer than the provider supports", NULL);
    inject_len = info->tx_attr->inject_size;
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = OPEN_MAX};
    check(fi_cq_open(domain, &queue, &sent, NULL), "fi_cq_open");
    check(fi_cq_open(domain, &queue, &received, NULL), "fi_cq_open");
    struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 2};
    check(fi_av_open(domain, &table, &addresses, NULL), "fi_av_open");
    check(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &received->fid, FI_RECV), "fi_ep_bind");
    check(fi_enable(endpoint), "fi_enable");
    fi_freeinfo(hints);
}

static size_t library_name(void *name, size_t len_max)
{
    check(fi_getname(&endpoint->fid, name, &len_max), "fi_getname");
    return len_max;
}

static void library_connect(const void *name, size_t len)
{
    (void)len;
    if (fi_av_insert(addresses, name, 1, &other, 0, NULL) != 1)
        die("fi_av_insert", NULL);
}

static void read_queue(struct fid_cq *queue, long *open)
{
    struct fi_cq_entry entries[BATCH];
    ssize_t count = fi_cq_read(queue, entries, BATCH);
    if (count > 0) {
        *open -= count;
    } else if (count != -FI_EAGAIN) {
        struct fi_cq_err_entry error = {0};
        if (count == -FI_EAVAIL && fi_cq_readerr(queue, &error, 0) == 1)
            die("an operation failed", fi_strerror(error.err));
        die("fi_cq_read", fi_strerror((int)-count));
    }
}

static void progress(void)
{
    if (sends_open > 0)
        read_queue(sent, &sends_open);
    read_queue(received, &receives_open);
}

// Retries a call while the provider has no resources, and makes progress meanwhile.
#define RETRY(call, what)                                                                                              \
    do {                                                                                                               \
        ssize_t result_;                                                                                               \
        double begun_ = 0;                                                                                             \
        while ((result_ = (call)) == -FI_EAGAIN) {                                                                     \
            begun_ = begun_ > 0 ? begun_ : now();                                                                      \
            if (now() - begun_ > SILENCE_MAX)                                                                          \
                die("the other end sends nothing", NULL);                                                              \
            progress();                                                                                                \
        }                                                                                                              \
        check(result_, what);                                                                                          \
    } while (0)

static void post_send(const void *bytes, size_t len, uint64_t tag)
{
    if (len <= inject_len) {
        // Injected sends have no completion.
        RETRY(fi_tinject(endpoint, bytes, len, other, tag), "fi_tinject");
        return;
    }
    void *context = context_of(0);
    RETRY(fi_tsend(endpoint, bytes, len, NULL, other, tag, context), "fi_tsend");
    sends_open++;
}

static void post_receive(void *bytes, size_t len, uint64_t tag)
{
    void *context = context_of(1);
    RETRY(fi_trecv(endpoint, bytes, len, NULL, FI_ADDR_UNSPEC, tag, 0, context), "fi_trecv");
    receives_open++;
}

static void library_close(void)
{
    fi_close(&endpoint->fid);
    fi_close(&addresses->fid);
    fi_close(&sent->fid);
    fi_close(&received->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
}
