// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a job of one sends a message to itself, and a lambda is called when it has arrived.

#include <gm.h>

#include <cstring>

int main() {
    gm_port *port = nullptr;
    if (gm_init() != GM_SUCCESS || gm_open(&port, 0, 2, "c++", GM_API_VERSION) != GM_SUCCESS) return 1;
    char word[8] = "ahoy", buffer[16];
    int status = -1;
    auto callback = [](gm_port *, void *context, gm_status_t how) { *static_cast<int *>(context) = how; };
    gm_provide_receive_buffer_with_tag(port, buffer, 4, GM_LOW_PRIORITY, 7);
    gm_send_to_peer_with_callback(port, word, 4, 5, GM_LOW_PRIORITY, 1, callback, &status);
    gm_recv_event_t *event = gm_blocking_receive(port);
    while (GM_RECV_EVENT_TYPE(event) != GM_FAST_PEER_RECV_EVENT) {
        gm_unknown(port, event);
        event = gm_blocking_receive(port);
    }
    if (std::strcmp(static_cast<char *>(gm_ntohp(event->recv.message)), "ahoy") != 0) return 2;
    while (status == -1) gm_unknown(port, gm_receive(port));
    gm_close(port);
    gm_finalize();
    return status;
}
