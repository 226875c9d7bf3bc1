"""Products of sparse counts with a matrix for each of many sets of folds, compiled.

The loop holds no lock of Python's while it runs, so that threads may run stretches side by side.
"""

import numpy as np
from numba import njit


@njit(nogil=True)
def add_products(indptr, rows, counts, F, sets, n, first, Z):  # type: ignore[no-untyped-def]
    """Z[s, v] = Σ_k of set s Σ_i C[k, i, first + v] F_s[i], for the tokens of one stretch.

    indptr, rows, counts   C (K·n, V) column by column
    F      (K·n, M, c) float32: row k·n + i holds F_s[i] for each set s that has fold k
    sets   (K, M) those sets, −1 behind the last one
    Z      (sets, tokens, c) float32, at first 0
    An entry is multiplied into all sets of its fold at once: their rows of F lie side by side.
    """
    M, c = F.shape[1], F.shape[2]
    flat = F.reshape(F.shape[0], M * c)
    along = np.empty(M * c, np.float32)
    for v in range(Z.shape[1]):
        e, end = indptr[first + v], indptr[first + v + 1]
        while e < end:
            k = rows[e] // n
            along[:] = 0
            while e < end and rows[e] < (k + 1) * n:
                row, x = flat[rows[e]], counts[e]
                for j in range(M * c):
                    along[j] += x * row[j]
                e += 1
            for m in range(M):
                s = sets[k, m]
                if s < 0:
                    break
                for j in range(c):
                    Z[s, v, j] += along[m * c + j]
