"""A store past the cache, for what is written whole and not read again soon.

An ordinary store first reads the cache line that it writes to, and drives out another: half of the
traffic of a loop that does little else.  NumPy copies large arrays like this; numba has no name
for it.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _store(typing, words, i, j, word):  # type: ignore[no-untyped-def]
    def written(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        at = cgutils.get_item_pointer(context, builder, kind, array, arguments[1:3])
        stored = builder.store(arguments[3], at)
        one = ir.Constant(ir.IntType(32), 1)
        stored.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp, types.uint64), written


store: Any = intrinsic(_store)  # in compiled loops: store(words, i, j, word) is words[i, j] = word,
# for a C-contiguous array of 64-bit words and i, j >= 0, which are not looked at
