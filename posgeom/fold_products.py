"""Products of sparse counts with a matrix for each of many sets of folds, compiled.

The loop holds no lock of Python's while it runs, so that threads may run stretches side by side.
"""

import numpy as np
from numba import njit


@njit(nogil=True)
def add_products(rows, counts, begins, tokens, F, sets, Z):  # type: ignore[no-untyped-def]
    """Z[s, v] = Σ_k of set s Σ_i C[k, i, tokens[v]] F_s[i], for some tokens.

    rows, counts   entries of C fold by fold, in each column by column
    begins (K, V + 1) where the columns of each fold begin, and the last one ends
    F      (K, n, M, c) float32: [k, i] holds F_s[i] for each set s that has fold k
    sets   (K, M) those sets, −1 behind the last one
    Z      (sets, tokens, c) float32, at first 0
    An entry is multiplied into all sets of its fold at once: their rows of F lie side by side.
    """
    K, n, M, c = F.shape
    flat = F.reshape(K, n, M * c)
    along = np.empty(M * c, np.float32)
    for k in range(K):  # outermost: F[k] just fits in a cache
        for v in range(Z.shape[1]):
            begin, end = begins[k, tokens[v]], begins[k, tokens[v] + 1]
            if begin == end:
                continue
            along[:] = 0
            for e in range(begin, end):
                row, x = flat[k, rows[e]], counts[e]
                for j in range(M * c):
                    along[j] += x * row[j]
            for m in range(M):
                s = sets[k, m]
                if s < 0:
                    break
                for j in range(c):
                    Z[s, v, j] += along[m * c + j]
