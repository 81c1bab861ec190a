# SPDX-License-Identifier: MIT OR Apache-2.0
"""Transforms arrays with mpi4py-fft, which exchanges parts of arrays by MPI_Alltoallw, and compares with NumPy.

Rank 0 prints the number of transforms and of those with a wrong element.
"""

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

world = MPI.COMM_WORLD


def wrong(shape, grid, kind):
    """Returns 1 if this process finds a wrong element in the transform of random numbers, or in its inverse."""
    fft = PFFT(world, shape, dtype=kind, grid=grid)
    whole = np.random.default_rng(1).standard_normal(shape).astype(kind)
    part = newDistArray(fft, False)
    part[...] = whole[part.local_slice()]
    spectrum = fft.forward(part, newDistArray(fft, True))
    reference = (np.fft.rfftn if kind == "d" else np.fft.fftn)(whole) / whole.size
    right = np.allclose(spectrum, reference[spectrum.local_slice()], atol=1e-12)
    back = fft.backward(spectrum, newDistArray(fft, False))
    right &= np.allclose(back, whole[part.local_slice()], atol=1e-12)
    fft.destroy()
    return 0 if right else 1


cases = [
    (shape, grid, kind)
    for shape in [(32, 48), (24, 20, 28), (12, 8, 10, 16)]
    for grid in [(-1,), (1, -1), (0, 0)][: len(shape) - 1]
    for kind in "dD"
]
count = sum(world.allreduce(wrong(*case), op=MPI.MAX) for case in cases)
if world.rank == 0:
    print(f"fft ranks={world.size} transforms={len(cases)} wrong={count}")
