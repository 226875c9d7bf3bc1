"""Tokens that stand one behind the other in some blocks, one below the other in columns.

Square by square: a cache line of each of as many blocks as it has tokens, turned in registers.
numba has no names for what makes this fast: vectors that are shuffled, a word to the memory that a
line will soon be wanted, and stores past the cache.  An ordinary store first reads the line that
it writes to, and drives out another; the C library copies large arrays past the cache too.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes of a cache line


def _turn(typing, stream, blocks, k, first, columns, height):  # type: ignore[no-untyped-def]
    """columns[first + i, k + e] = stream[blocks[k + e] + first + i], in compiled loops.

    For all e and i below the tokens of a LINE, i < height.  Nothing looks at the indices: the
    stream, contiguous, and the blocks reach that far, and columns[·, k] begins a LINE.
    """
    bits = stream.dtype.bitwidth
    lanes = 8 * LINE // bits
    vector = ir.VectorType(ir.IntType(bits), lanes)

    def turned(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, begins, target = (
            context.make_array(kind)(context, builder, arguments[at])
            for at, kind in ((0, stream), (1, blocks), (4, columns))
        )
        k, first, height = arguments[2], arguments[3], arguments[5]
        numbers = [ir.Constant(k.type, e) for e in range(lanes)]
        rows = []
        for e in numbers:
            begin = cgutils.get_item_pointer(context, builder, blocks, begins, [builder.add(k, e)])
            at = builder.gep(source.data, [builder.add(builder.load(begin), first)])
            at = builder.bitcast(at, vector.as_pointer())
            rows.append(builder.load(at, align=bits // 8))
        rows = _transposed(builder, rows)
        mark = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        for i, row in zip(numbers, rows, strict=True):
            with builder.if_then(builder.icmp_signed("<", i, height)):
                to = [builder.add(first, i), k]
                at = cgutils.get_item_pointer(context, builder, columns, target, to)
                at = builder.bitcast(at, vector.as_pointer())
                builder.store(row, at, align=LINE).set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(stream, blocks, types.intp, types.intp, columns, types.intp), turned


def _transposed(builder: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    """The columns of a square of vectors: halves of blocks of 2, 4, 8, … rows are exchanged."""
    rows, n = list(rows), len(rows)
    kind = ir.VectorType(ir.IntType(32), n)
    half = 1
    while half < n:
        of_first = [i if not i & half else n + i - half for i in range(n)]
        of_second = [i + half if not i & half else n + i for i in range(n)]
        for e in range(n):
            if not e & half:
                x, y = rows[e], rows[e + half]
                rows[e] = builder.shuffle_vector(x, y, ir.Constant(kind, of_first))
                rows[e + half] = builder.shuffle_vector(x, y, ir.Constant(kind, of_second))
        half *= 2
    return rows


def _fetch(typing, stream, at):  # type: ignore[no-untyped-def]
    """Have the cache line of stream[at] brought into the cache, without waiting for it."""

    def fetched(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source = context.make_array(stream)(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(source.data, [arguments[1]]), cgutils.voidptr_t)
        flag = ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], takes)
        to_read, into_all_caches, of_data = (ir.Constant(flag, k) for k in (0, 3, 1))
        builder.call(prefetch, [address, to_read, into_all_caches, of_data])
        return context.get_dummy_value()

    return types.void(stream, types.intp), fetched


turn: Any = intrinsic(_turn)
fetch: Any = intrinsic(_fetch)
