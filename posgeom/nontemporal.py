"""A store past the cache, for what is written whole and not read again soon.

An ordinary store first reads the cache line that it writes to, and drives out another: much of
the traffic of a loop that does little else.  numba has no name for it; the C library copies large
arrays like this.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _store(typing, words, i, j, word):  # type: ignore[no-untyped-def]
    """words[i, j] = word, of 64 bits, in compiled loops.

    The indices, 0 or more, are not looked at; a word lies at a multiple of eight bytes.
    """

    def written(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        at = cgutils.get_item_pointer(context, builder, kind, array, arguments[1:3])
        stored = builder.store(arguments[3], at)
        one = ir.Constant(ir.IntType(32), 1)
        stored.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp, types.uint64), written


store: Any = intrinsic(_store)
