/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fragments: sending and receiving them. */
#include "btl_portolan.h"

#include <string.h>

#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"

static void construct_fragment(portolan_fragment_t *fragment)
{
    fragment->base.des_segments = &fragment->segment;
    fragment->base.des_segment_count = 1;
    fragment->segment.seg_addr.pval = fragment + 1;
}

OBJ_CLASS_INSTANCE(portolan_fragment_t, mca_btl_base_descriptor_t, construct_fragment, NULL);

mca_btl_base_descriptor_t *portolan_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                          uint8_t order, size_t size, uint32_t flags)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    opal_free_list_t *list =
        size <= PORTOLAN_SHORT_LEN_MAX ? &module->short_fragments : &module->long_fragments;

    if (OPAL_UNLIKELY(size > btl->btl_max_send_size && size > btl->btl_eager_limit)) {
        return NULL;
    }
    portolan_fragment_t *fragment = (portolan_fragment_t *) opal_free_list_get(list);
    if (OPAL_UNLIKELY(NULL == fragment)) {
        return NULL;
    }
    fragment->list = list;
    fragment->endpoint = endpoint;
    fragment->segment.seg_len = size;
    fragment->base.des_flags = flags;
    fragment->base.des_cbfunc = NULL;
    fragment->base.order = order;
    return &fragment->base;
}

int portolan_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    portolan_fragment_t *fragment = (portolan_fragment_t *) descriptor;

    (void) btl;
    opal_free_list_return(fragment->list, &descriptor->super);
    return OPAL_SUCCESS;
}

/* Copies the next bytes of a message into a fragment. The caller's memory is free when this returns. */
mca_btl_base_descriptor_t *portolan_prepare_src(mca_btl_base_module_t *btl,
                                                struct mca_btl_base_endpoint_t *endpoint,
                                                opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                size_t *size, uint32_t flags)
{
    size_t space = btl->btl_max_send_size - reserve;
    size_t len = *size < space ? *size : space;
    mca_btl_base_descriptor_t *descriptor = portolan_alloc(btl, endpoint, order, reserve + len, flags);

    if (OPAL_UNLIKELY(NULL == descriptor)) {
        return NULL;
    }
    struct iovec iov = {
        .iov_base = (char *) descriptor->des_segments->seg_addr.pval + reserve,
        .iov_len = len,
    };
    uint32_t count = 1;
    if (opal_convertor_pack(convertor, &iov, &count, &len) < 0) {
        portolan_free(btl, descriptor);
        return NULL;
    }
    descriptor->des_segments->seg_len = reserve + len;
    *size = len;
    return descriptor;
}

int portolan_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag)
{
    portolan_module_t *module = (portolan_module_t *) btl;
    portolan_fragment_t *fragment = (portolan_fragment_t *) descriptor;
    uint32_t flags = descriptor->des_flags;

    module->has_traffic = true;
    fragment->endpoint = endpoint;
    int status = portolan_btl_send(module->endpoint, endpoint->peer, tag, fragment->segment.seg_addr.pval,
                                   fragment->segment.seg_len, (uint64_t) (uintptr_t) fragment);
    if (OPAL_LIKELY(PORTOLAN_BTL_DONE == status)) {
        if (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) {
            descriptor->des_cbfunc(btl, endpoint, descriptor, OPAL_SUCCESS);
        }
        if (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) {
            portolan_free(btl, descriptor);
        }
        return 1;
    }
    if (PORTOLAN_BTL_OK == status) {
        /* Another thread may have completed and freed the fragment already: do not touch it. */
        return OPAL_SUCCESS;
    }
    if (OPAL_UNLIKELY(PORTOLAN_BTL_GONE == status)) {
        portolan_report_failed_peer(module, endpoint, portolan_btl_error());
    }
    return portolan_result(status);
}

/* Completes a fragment that portolan_send() returned as pending. */
void portolan_on_sent(portolan_fragment_t *fragment, int status)
{
    mca_btl_base_descriptor_t *descriptor = &fragment->base;
    bool is_owned = 0 != (descriptor->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);

    if (NULL != descriptor->des_cbfunc) {
        descriptor->des_cbfunc(&portolan_module.super, fragment->endpoint, descriptor, status);
    }
    if (is_owned) {
        portolan_free(&portolan_module.super, descriptor);
    }
}

int portolan_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                   opal_convertor_t *convertor, void *header, size_t header_size, size_t payload_size,
                   uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t **descriptor)
{
    portolan_module_t *module = (portolan_module_t *) btl;

    module->has_traffic = true;
    if (OPAL_LIKELY(0 == payload_size || !opal_convertor_need_buffers(convertor))) {
        void *payload = NULL;
        if (0 != payload_size) {
            opal_convertor_get_current_pointer(convertor, &payload);
        }
        int status = portolan_btl_inject(module->endpoint, endpoint->peer, tag, header, header_size, payload,
                                         payload_size);
        if (OPAL_LIKELY(PORTOLAN_BTL_DONE == status)) {
            return OPAL_SUCCESS;
        }
    }
    /* The caller packs the message into a fragment, which portolan_send() can queue. */
    if (NULL != descriptor) {
        *descriptor = portolan_alloc(btl, endpoint, order, header_size + payload_size, flags);
    }
    return OPAL_ERR_RESOURCE_BUSY;
}

/* Passes a message to the callback of its tag. Messages are passed one at a time, also with several threads. */
void portolan_on_message(void *user, uint8_t tag, const void *bytes, size_t len)
{
    static mca_btl_base_segment_t segment;
    const mca_btl_active_message_callback_t *trigger = mca_btl_base_active_message_trigger + tag;
    mca_btl_base_module_t *btl = user;

    /* The table has no entry 255, and a peer of another version may use a tag that is not registered here. */
    if (OPAL_UNLIKELY(tag >= MCA_BTL_TAG_MAX || NULL == trigger->cbfunc)) {
        BTL_ERROR(("dropped a message of %zu bytes with the unknown tag %u", len, tag));
        return;
    }
    portolan_module.has_traffic = true;
    segment.seg_addr.pval = (void *) bytes;
    segment.seg_len = len;
#if BTL_VERSION == 310
    static mca_btl_base_descriptor_t descriptor = {
        .des_segments = &segment,
        .des_segment_count = 1,
    };
    trigger->cbfunc(btl, tag, &descriptor, trigger->cbdata);
#else
    /* Only components that lack remote memory need the sender's endpoint. */
    mca_btl_base_receive_descriptor_t descriptor = {
        .endpoint = NULL,
        .des_segments = &segment,
        .des_segment_count = 1,
        .tag = tag,
        .cbdata = trigger->cbdata,
    };
    trigger->cbfunc(btl, &descriptor);
#endif
}
