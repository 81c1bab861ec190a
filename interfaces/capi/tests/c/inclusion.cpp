// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a job of one sends a message to itself, and a lambda without captures handles it.

#include <portolan.h>

#include <cstring>

namespace {

constexpr unsigned PORT = 3;

}  // namespace

int main() {
    portolan_node_t *node = nullptr;
    if (portolan_join(&node) != PORTOLAN_OK) return 1;
    bool seen = false;
    auto handler = [](portolan_node_t *, const portolan_message_t *message, void *user) {
        *static_cast<bool *>(user) = message->len == 4 && !std::memcmp(message->bytes, "ahoy", 4);
    };
    if (portolan_open_active(node, PORT, PORTOLAN_IN_PLACE, handler, &seen) != PORTOLAN_OK) return 2;
    if (portolan_send(node, 0, PORT, "ahoy", 4, 0) != PORTOLAN_OK) return 3;
    auto done = [](void *user) { return static_cast<int>(*static_cast<bool *>(user)); };
    if (portolan_wait_until(node, done, &seen) != PORTOLAN_OK) return 4;
    auto counters = PORTOLAN_SIZED(portolan_counters_t);
    if (portolan_counters(node, &counters) != PORTOLAN_OK || counters.messages_sent != 1) return 5;
    return portolan_close(node) == PORTOLAN_OK ? 0 : 6;
}
