"""A text means the same wherever it stands: padded on either side, or packed behind others."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

from posgeom.encodings import make_encoding  # noqa: E402
from posgeom.torch import (  # noqa: E402
    AttentionBias,
    GramBias,
    LowRankPositionalEncoding,
    RotaryEmbedding,
    TablePositionalEncoding,
    fold_bias,
    packed_positions,
    padded_positions,
)

torch.set_num_threads(1)
HEADS, DIM, LONGEST = 2, 8, 9
RANDOM = np.random.default_rng(0)
A, B = RANDOM.standard_normal((LONGEST, 3)), RANDOM.standard_normal((HEADS * DIM, 3))
W = torch.from_numpy(RANDOM.standard_normal((3, HEADS * DIM, HEADS * DIM)) / 4).float()

LAYERS = {
    "factors": LowRankPositionalEncoding(A, B),
    "table": TablePositionalEncoding(A @ B.T),
    "rope": RotaryEmbedding.from_encoding(make_encoding(f"rope:dim={DIM},pairing=halves")),
    "alibi": AttentionBias.from_encoding(make_encoding(f"alibi:heads={HEADS}")),
    "t5": AttentionBias.from_encoding(make_encoding(f"t5:heads={HEADS},buckets=4,max_distance=3")),
    "gram": GramBias(A, [0.5, 2.0]),
    "fold": fold_bias(A, [0.5, 2.0]),
}
every = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
TEXTS = [torch.from_numpy(RANDOM.standard_normal((n, HEADS * DIM))).float() for n in (4, 9, 6)]


def attend(layer, x, positions, seen):
    """One causal layer over x (batch, n, width); seen (batch, n, n) which keys a query may see."""
    if isinstance(layer, LowRankPositionalEncoding | TablePositionalEncoding):
        x = layer(x, positions)
    split = (x @ W[:, None]).unflatten(-1, (HEADS, DIM)).transpose(-2, -3)
    q, k, v = split
    n = x.shape[1]
    # a padded token sees itself, so that its row has a softmax
    seen = (seen & torch.ones(n, n).tril().bool()) | torch.eye(n).bool()
    logits = torch.zeros(len(x), 1, n, n).masked_fill(~seen[:, None], -torch.inf)
    scale = None
    if isinstance(layer, RotaryEmbedding):
        q, k = layer(q, k, positions)
    elif isinstance(layer, AttentionBias):
        logits = logits + layer(n if positions is None else positions)
    elif layer is LAYERS["fold"]:
        q, k, scale = layer(q, k, positions)
    return attention(q, k, v, attn_mask=logits, scale=scale).transpose(1, 2).flatten(2)


def alone(layer, text):
    """The text by itself, positions implied."""
    n = len(text)
    return attend(layer, text[None], None, torch.ones(1, n, n).bool())[0]


def padded(side):
    """The texts in one batch, their mask, and where each lies."""
    n = max(map(len, TEXTS))
    x, mask = torch.full((len(TEXTS), n, HEADS * DIM), 7.0), torch.zeros(len(TEXTS), n)
    places = []
    for row, text in enumerate(TEXTS):
        start = n - len(text) if side == "left" else 0
        places.append(slice(start, start + len(text)))
        x[row, places[-1]], mask[row, places[-1]] = text, 1
    return x, mask, places


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(layer, side):
    x, mask, places = padded(side)
    out = attend(layer, x, padded_positions(mask), mask.bool()[:, None, :])
    for row, (text, place) in enumerate(zip(TEXTS, places, strict=True)):
        torch.testing.assert_close(out[row, place], alone(layer, text), rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["factors", "table"])
def test_without_positions_left_padding_is_another_text(name):
    """What the positions are for: these two read the places as positions."""
    x, mask, places = padded("left")
    out = attend(LAYERS[name], x, None, mask.bool()[:, None, :])
    apart = (out[0, places[0]] - alone(LAYERS[name], TEXTS[0])).detach().abs()
    assert float(apart.max()) > 0.01


@every
def test_packed_documents_start_again(layer):
    """19 tokens in a block, more than the table has rows: each document has its own 0."""
    numbers = torch.repeat_interleave(torch.tensor([5, 3, 8]), torch.tensor([4, 9, 6]))
    out = attend(
        layer,
        torch.cat(TEXTS)[None],
        packed_positions(numbers)[None],
        (numbers[:, None] == numbers)[None],
    )
    wanted = torch.cat([alone(layer, text) for text in TEXTS])
    torch.testing.assert_close(out[0], wanted, rtol=0, atol=2e-6)
