"""The encodings of a model: what its config says, made with its weights where it needs them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from posgeom.encodings.base import Encoding
from posgeom.encodings.bias import BiasEncoding
from posgeom.encodings.config import LENGTH_KEYS, encodings_from_config
from posgeom.encodings.config_values import whole
from posgeom.encodings.learned import KNOWN_KEYS, LearnedPositions, LearnedTable
from posgeom.encodings.registry import Spec, convert_options, family_options
from posgeom.encodings.rotary import Rotary
from posgeom.encodings.rotary_scaling import Scaling
from posgeom.encodings.t5 import TABLE_NAMES, T5Bias
from posgeom.encodings.table import Sinusoidal
from posgeom.errors import PosgeomError
from posgeom.passport.config import (
    HEADS,
    LAYERS,
    WIDTH,
    Config,
    check_model_type,
    language_config,
    read_config,
)
from posgeom.passport.weights import Weights


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """One encoding of a model.

    layers          the layer type, or the side of an encoder-decoder, that it serves; "" for all
    tensor, dtype   where the stored numbers are, and what; "" where nothing is stored
    stored          how many numbers that is, with the rows that no position has
    first_row       the row of a table that belongs to position 0
    max_length      positions that the model takes; None where nothing bounds them
    trained_length  positions before stretching, as far as the config tells
    """

    encoding: Encoding
    layers: str = ""
    tensor: str = ""
    dtype: str = ""
    stored: int = 0
    first_row: int | None = None
    max_length: int | None = None
    trained_length: int | None = None


@dataclass(frozen=True, eq=False)
class Model:
    """A model folder, opened: its config for text, its weights' headers, its encodings."""

    folder: Path
    config: Config
    weights: Weights
    found: tuple[Found, ...]


def open_model(path: str | Path) -> Model:
    """Read the config, the headers of the weights, and the tensors that hold positions.

    Raises PosgeomError where there is no config, where it says nothing of positions, is of an
    unknown model type or misses a key, and where weights that are needed are missing, pickled,
    broken, or hold NaN.
    """
    folder, said = read_config(path)
    config = language_config(said)
    try:
        check_model_type(config)
        made = encodings_from_config(config)
        for names in (LENGTH_KEYS, WIDTH, HEADS, LAYERS):
            whole(config, names)
    except PosgeomError as error:
        raise PosgeomError(f"{folder}/config.json: {error}") from error
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # a list where a number belongs, and the like: JSON holds anything under any key
        raise PosgeomError(
            f"{folder}/config.json has a value of a kind that its key does not take ({error}); "
            "compare it with the config of a model that loads"
        ) from error
    weights = Weights.open(folder)
    found = [f for kind, e in made.items() for f in _found(kind, e, config, weights)]
    return Model(folder, config, weights, tuple(found))


def model_encoding(address: str, spec: str = "") -> Encoding:
    """The encoding of the model at PATH[#LAYERS][,head=h], such as gemma3#sliding_attention.

    Of several the first: the table before a bias beside it, the encoder before the decoder, full
    attention before sliding.  Of a bias also one head (head=h, from 0), some (slice=a:b), and
    the reading.
    """
    path, layers, options = _parts(address)
    found = open_model(path).found
    if layers:
        known = [f.layers for f in found if f.layers]
        found = tuple(f for f in found if f.layers == layers)
        if not found:
            raise PosgeomError(
                f"{path} has no layers {layers!r}; it has {', '.join(known) or 'one kind alone'}"
            )
    encoding = found[0].encoding
    if options and not isinstance(encoding, BiasEncoding):
        raise PosgeomError(
            f"{path} has no bias but {encoding.family}: leave out {', '.join(options)}"
        )
    kinds = {name: kind for name, (kind, _) in family_options(type(encoding)).items()}
    chosen = convert_options(Spec(spec or address, "model", options), kinds)
    return replace(encoding, spec=spec, **chosen)


def _parts(address: str) -> tuple[str, str, dict[str, str]]:
    """PATH, LAYERS and the options of a bias behind them; a folder's name may hold commas."""
    path, hash_, layers = address.partition("#")
    rest, options = layers if hash_ else path, {}
    while hash_ or not Path(rest).exists():
        before, _, last = rest.rpartition(",")
        name, equals, value = last.partition("=")
        if not equals or name not in ("head", "slice", "reading"):
            break
        rest, options[name] = before, value
    return (path, rest, options) if hash_ else (rest, "", options)


def _found(kind: str, made: Encoding, config: Config, weights: Weights) -> Iterator[Found]:
    """An encoding that the config describes, filled with what the weights hold."""
    if isinstance(made, LearnedPositions):
        yield from _tables(made, weights)
        if weights.find(*TABLE_NAMES):  # MPNet has both
            yield from _buckets(config, weights, 128)
    elif isinstance(made, T5Bias):
        yield from _buckets(config, weights, made.max_distance)
    elif isinstance(made, Sinusoidal):
        yield _sinusoid(made, config, weights)
    else:
        longest = whole(config, LENGTH_KEYS)
        trained = longest
        if isinstance(made, Scaling) and made.scaling != "none":
            trained = made.original_length or longest
        yield Found(
            encoding=made,
            layers="" if kind == "all" else kind,
            max_length=longest if isinstance(made, Rotary) else None,
            trained_length=trained,
        )


def _tables(described: LearnedPositions, weights: Weights) -> Iterator[Found]:
    """The table; of an encoder-decoder that of the encoder, then that of the decoder."""
    weights.need(*KNOWN_KEYS)
    names = {side: weights.find(*KNOWN_KEYS, prefer=side) for side in ("encoder", "decoder")}
    if names["encoder"] == names["decoder"]:
        names = {"": names["encoder"]}
    for side, name in names.items():
        shape, first = weights.shape(name), described.offset
        if len(shape) != 2 or shape[0] <= first:
            raise PosgeomError(
                f"tensor {name} of {weights.folder} is of shape {shape}; expected (positions, "
                f"dimensions) with position 0 in row {first}"
            )
        rows = weights.read(name)[first:]
        yield Found(
            encoding=LearnedTable(rows=rows, offset=first),
            layers=side,
            tensor=name,
            dtype=weights.dtype(name),
            stored=shape[0] * shape[1],
            first_row=first,
            max_length=len(rows),
            trained_length=len(rows),
        )


def _sinusoid(computed: Sinusoidal, config: Config, weights: Weights) -> Found:
    """The sinusoid that the config describes; the weights' own table where they differ."""
    longest = whole(config, LENGTH_KEYS)
    name = weights.find(*KNOWN_KEYS, prefer="encoder")
    if not name:
        return Found(encoding=computed, max_length=longest, trained_length=longest)
    padding = config.get("pad_token_id")
    first = (1 if padding is None else int(padding)) + 1 if config["model_type"] == "fsmt" else 0
    rows = weights.read(name)[first:]
    same = rows.ndim == 2 and rows.shape[1] == computed.dim
    if same:  # within what bfloat16 leaves of it; the angle is that of the row, not the position
        expected = computed.table(np.arange(first, first + len(rows)))
        same = np.allclose(expected, rows, atol=1e-2)
    return Found(
        encoding=computed if same else LearnedTable(rows=rows, offset=first),
        tensor=name,
        dtype=weights.dtype(name),
        stored=int(np.prod(weights.shape(name))),
        first_row=first,
        max_length=len(rows),
        trained_length=len(rows),
    )


def _buckets(config: Config, weights: Weights, max_distance: int) -> Iterator[Found]:
    """The table of the encoder (both directions), then of the decoder (causal).

    Where each layer has a table of its own (UMT5) the heads of all layers are side by side.
    """
    weights.need(*TABLE_NAMES)
    buckets = whole(config, ("relative_attention_num_buckets",)) or 32
    for side, causal in (("encoder", False), ("decoder", True)):
        names = _bucket_tables(weights, side)
        if not names:
            continue
        for name in names:
            shape = weights.shape(name)
            if len(shape) != 2 or shape[0] != buckets:
                raise PosgeomError(
                    f"tensor {name} of {weights.folder} is of shape {shape}; expected "
                    f"({buckets} buckets, heads), as config.json says"
                )
        tables = [weights.read(name) for name in names]
        heads = tables[0].shape[1]
        remark = (
            f"each of the {len(names)} layers has a table of its own: heads 0 to {heads - 1} are "
            f"those of the first, {heads} to {2 * heads - 1} of the second, and so on"
        )
        yield Found(
            encoding=T5Bias(
                array=np.hstack(tables),
                buckets=buckets,
                max_distance=max_distance,
                causal=causal,
                remark=remark if len(names) > 1 else "",
            ),
            layers=side,
            tensor=names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}",
            dtype=weights.dtype(names[0]),
            stored=sum(table.size for table in tables),
        )


def _bucket_tables(weights: Weights, side: str) -> list[str]:
    """The tensors of one side, layer after layer.

    UDOP's encoder adds a sum of biases, the first of them T5's, in the place of its layer's own;
    its decoder does not.
    """
    names = [
        name
        for name in weights.tensors
        if name.endswith(TABLE_NAMES) and (name.startswith(f"{side}.") or f".{side}." in name)
    ]
    summed = [name for name in names if ".biases." in name]
    own = [name for name in names if name not in summed]
    first = [name for name in summed if ".biases.0." in name]
    chosen = first if side == "encoder" and first else own
    return sorted(chosen, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
