/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints types and numbers of gm.h as a C compiler has them; header.rs compares them with Rust's.
 * Known properties of GM's own types are asserted. */

#include <gm.h>
#include <gm.h>

#include <stddef.h>
#include <stdio.h>

#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)

typedef struct gm_port *port;
typedef unsigned int number;
typedef unsigned long length;
typedef void (*callback)(struct gm_port *, void *, gm_status_t);

IS(gm_init, gm_status_t (*)(void));
IS(gm_finalize, void (*)(void));
IS(gm_open, gm_status_t (*)(struct gm_port **, number, number, const char *, number));
IS(gm_close, void (*)(port));
IS(gm_provide_receive_buffer_with_tag, void (*)(port, void *, number, number, number));
IS(gm_set_acceptable_sizes, gm_status_t (*)(port, number, gm_size_t));
IS(gm_receive, gm_recv_event_t *(*)(port));
IS(gm_blocking_receive, gm_recv_event_t *(*)(port));
IS(gm_unknown, void (*)(port, gm_recv_event_t *));
IS(gm_send_with_callback,
   void (*)(port, void *, number, gm_size_t, number, number, number, callback, void *));
IS(gm_send_to_peer_with_callback,
   void (*)(port, void *, number, gm_size_t, number, number, callback, void *));
IS(gm_datagram_send,
   void (*)(port, void *, number, gm_size_t, number, number, number, callback, void *));
IS(gm_directed_send_with_callback,
   void (*)(port, void *, gm_remote_ptr_t, gm_size_t, number, number, number, callback, void *));
IS(gm_get, void (*)(port, gm_remote_ptr_t, void *, gm_size_t, number, number, number, callback, void *));
IS(gm_resume_sending, void (*)(port, number, number, number, callback, void *));
IS(gm_drop_sends, void (*)(port, number, number, number, callback, void *));
IS(gm_set_alarm, void (*)(port, gm_alarm_t *, uint64_t, void (*)(void *), void *));
IS(gm_strerror, char *(*)(gm_status_t));
IS(gm_send, void (*)(port, void *, number, gm_size_t, number, number, number));
IS(gm_directed_send, void (*)(port, void *, gm_remote_ptr_t, gm_size_t, number, number, number));
IS(gm_datagram_send_4,
   void (*)(port, gm_u32_t, number, gm_size_t, number, number, number, callback, void *));
IS(gm_directcopy_get, gm_status_t (*)(port, void *, void *, gm_size_t, number, number));
IS(gm_free_send_tokens, void (*)(port, number, number));
IS(gm_node_id_to_host_name, char *(*)(port, number));
IS(gm_node_id_to_host_name_ex,
   gm_status_t (*)(port, number, number, char (*)[GM_MAX_HOST_NAME_LEN + 1]));
IS(gm_get_unique_board_id, gm_status_t (*)(port, char[6]));
IS(gm_bcopy, void (*)(const void *, void *, gm_size_t));
_Static_assert(_Generic((gm_mark_t)0, gm_size_t: 1, default: 0), "gm_mark_t");
_Static_assert(sizeof(gm_up_t) == sizeof(void *) && sizeof(gm_s16_n_t) == 2, "numbers");
_Static_assert(sizeof(enum gm_status) == sizeof(gm_status_t), "gm_status");
_Static_assert(sizeof(gm_recv_t) == sizeof(gm_recv_event_t), "gm_recv_t");
_Static_assert(sizeof(gm_size_t) == sizeof(length), "gm_size_t");

int main(void) {
    printf("gm_recv_event_t %zu %zu\n", sizeof(gm_recv_event_t), _Alignof(gm_recv_event_t));
    printf("gm_alarm_t %zu\n", sizeof(gm_alarm_t));
    printf("gm_mark_t %zu\n", sizeof(gm_mark_t));
    enum gm_priority priority = GM_HIGH_PRIORITY;
    enum gm_api_version version = GM_API_VERSION_1_5;
    enum gm_recv_event_type type = _GM_RECV_EVENT;
    if (priority != 1 || version != 0x105 || type != GM_RECV_EVENT || _GM_SLEEP_EVENT != 4) return 1;
    printf("type %zu\n", offsetof(gm_recv_event_t, recv.type));
    return 0;
}
