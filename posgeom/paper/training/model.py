"""The small Transformer encoder that learns, with posgeom's own layers for its positions."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posgeom.encodings import Alibi, BiasEncoding, Encoding, FixedTable, Rope, Rotary
from posgeom.paper.training.settings import WIDER
from posgeom.paper.training.trained import TrainedRotary, TrainedSlopes
from posgeom.torch import (
    AttentionBias,
    LowRankPositionalEncoding,
    RotaryEmbedding,
    TablePositionalEncoding,
)
from posgeom.torch.tables import AddedPositions


class Encoder(nn.Module):
    """A pre-norm Transformer encoder; Vaswani et al. (2017), Xiong et al. (2020).

    added, turned, biased: where positions come in, at most one of them is there; angles and biases
    are the same in all layers, so that a model has one encoding
    """

    def __init__(self, tokens: int, outputs: int, dim: int, heads: int, layers: int) -> None:
        super().__init__()
        self.added: AddedPositions | None = None
        self.turned: RotaryEmbedding | None = None
        self.biased: AttentionBias | None = None
        self.tokens = nn.Embedding(tokens, dim)
        nn.init.normal_(self.tokens.weight, std=dim**-0.5)  # rows of norm 1
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.outputs = nn.Linear(dim, outputs)

    def place(self, encoding: Encoding, *, trained: bool, rank: int | None) -> None:
        """Put an encoding where its kind belongs; one without distances changes nothing."""
        if isinstance(encoding, FixedTable):
            if rank is None:
                self.added = TablePositionalEncoding.from_encoding(encoding, trainable=trained)
            else:
                self.added = LowRankPositionalEncoding.from_encoding(
                    encoding, rank=rank, trainable=trained
                )
        if isinstance(encoding, Rotary):
            kind = TrainedRotary if trained else RotaryEmbedding
            self.turned = kind.from_encoding(encoding)
        if isinstance(encoding, Alibi) and trained:
            self.biased = TrainedSlopes(encoding.slopes)
        elif isinstance(encoding, BiasEncoding):
            self.biased = AttentionBias.from_encoding(encoding)

    def encoding(self, start: Encoding) -> Encoding:
        """The encoding as it is now, of a model in which `start` was placed."""
        if self.added is not None:
            return FixedTable(rows=self.added.table().detach().numpy().astype(np.float64))
        if isinstance(self.turned, TrainedRotary) and isinstance(start, Rope):
            return self.turned.encoding(start)
        if isinstance(self.biased, TrainedSlopes) and isinstance(start, Alibi):
            return self.biased.encoding(start)
        return start

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Vectors of the tokens ids (batch, n), of which each row has `lengths`: (batch, n, d)."""
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        bias = torch.zeros(inside.shape).masked_fill(~inside, -torch.inf)[:, None, None, :]
        if self.biased is not None:
            bias = bias + self.biased(ids.shape[1])
        x = self.tokens(ids)
        if self.added is not None:
            x = self.added(x)
        for layer in self.layers:
            x = layer(x, bias, self.turned)
        return self.norm(x)

    def classify(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Logits of each row's classes (batch, classes), from the mean of its vectors."""
        x = self(ids, lengths)
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        mean = (x * inside[..., None]).sum(1) / lengths[:, None]
        return self.outputs(mean)

    def guess(self, ids: Tensor, lengths: Tensor, asked: Tensor) -> Tensor:
        """Logits (k, tokens) at the k places of ids where `asked` (batch, n) is True."""
        return self.outputs(self(ids, lengths)[asked])


class Layer(nn.Module):
    """Attention and a hidden layer, each after a layer norm and added to what came in."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, WIDER * dim), nn.Linear(WIDER * dim, dim)

    def forward(self, x: Tensor, bias: Tensor, turned: RotaryEmbedding | None) -> Tensor:
        """x (batch, n, d), bias (batch, heads or 1, n or 1, n) of the logits: (batch, n, d).

        turned: what turns queries and keys, where something does
        """
        x = x + self.attention(self.norm_1(x), bias, turned)
        return x + self.down(F.relu(self.up(self.norm_2(x))))

    def attention(self, x: Tensor, bias: Tensor, turned: RotaryEmbedding | None) -> Tensor:
        """softmax(q kᵀ/√d_h + b) v of all heads, d_h their width: (batch, n, d)."""
        batch, n, d = x.shape
        q, k, v = self.qkv(x).reshape(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if turned is not None:
            q, k = turned(q, k)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(batch, n, d))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers start at the seed, on one thread; afterwards all is as before."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # sums of several threads come out in another order
        try:
            yield
        finally:
            torch.set_num_threads(threads)
