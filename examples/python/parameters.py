# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fits a line by stochastic gradient descent with a parameter server.

Rank 0 has the parameters; each worker gets them, computes the gradient for some of its points, and
sends it back, without waiting for other workers. The input is the number of steps of each worker; the
output has the parameters that were found, of 2.0 and -3.0.

    $ portolan run -n 3 -- python parameters.py 300
    2.0 -3.0
"""

import sys

import numpy as np

import portolan

PORT, RATE = 1, 0.1


def serve(node, steps):
    """Applies gradients as they come. A request without one is for the parameters only."""
    parameters = np.zeros(2)
    for _ in range((node.size - 1) * (steps + 1)):
        request = node.recv_call(PORT)
        if request.data:
            parameters -= RATE * np.frombuffer(request.data)
        node.reply(request, parameters)
    return parameters


def work(node, steps):
    """Computes gradients of the squared error."""
    random = np.random.default_rng(node.rank)
    gradient = np.zeros(0)
    for _ in range(steps + 1):
        _, reply = node.call(0, PORT, gradient)
        slope, height = np.frombuffer(reply)
        x = random.uniform(-1, 1, 20)
        y = 2 * x - 3 + 0.01 * random.normal(size=20)
        error = slope * x + height - y
        gradient = np.array([(error * x).mean(), error.mean()])


with portolan.Node() as node:
    if node.rank == 0:
        node.open(PORT)
        found = serve(node, int(sys.argv[1]))
        print(*np.round(found, 1))
    else:
        work(node, int(sys.argv[1]))
