// SPDX-License-Identifier: MIT OR Apache-2.0
// A C++ program: a group of one sends a message to itself, and a lambda handles it.

#include <gamma.h>

#include <cstring>

namespace {

constexpr unsigned short PORT = 3, SEMAPHORE = 4;
char buffer[8];

}  // namespace

int main(int argc, char **argv) {
    if (gamma_init(1, argc, argv) < 0) return 1;
    auto handler = [] { gamma_signal(gamma_msglen == 4 ? SEMAPHORE : SEMAPHORE + 1); };
    auto pid = static_cast<unsigned char>(gamma_my_par_pid());
    if (gamma_set_active_port(PORT, 0, pid, PORT, handler, SEMAPHORE, GO_BACK, buffer,
                              sizeof buffer) < 0)
        return 2;
    if (gamma_send_2p_flowctl(PORT, "ah", 2, "oy", 2) < 0) return 3;
    if (gamma_wait(SEMAPHORE, 1) < 0 || std::memcmp(buffer, "ahoy", 4) != 0) return 4;
    return gamma_exit() < 0 ? 5 : 0;
}
