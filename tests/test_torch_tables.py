"""Layers that add a table: whole and as factors, with positions given or implied."""

import copy
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

torch = pytest.importorskip("torch")

import posgeom  # noqa: E402
from posgeom.emit.folder import write_geometry  # noqa: E402
from posgeom.encodings import FixedTable, make_encoding  # noqa: E402
from posgeom.errors import PosgeomError  # noqa: E402
from posgeom.geometry import Geometry  # noqa: E402
from posgeom.torch import (  # noqa: E402
    LowRankPositionalEncoding,
    TablePositionalEncoding,
    packed_positions,
    padded_positions,
)

torch.set_num_threads(1)
RANDOM = np.random.default_rng(0)
A, B = RANDOM.standard_normal((12, 3)), RANDOM.standard_normal((8, 3))


def layers(**options):
    return [TablePositionalEncoding(A @ B.T, **options), LowRankPositionalEncoding(A, B, **options)]


both = pytest.mark.parametrize("kind", [0, 1], ids=["table", "low rank"])


def write_run(folder, *, positions=None, grid=None, methods=None, **more):
    """An encoding.safetensors as `posgeom design` leaves it."""
    tensors = {"A": A, "B": B, "positions": np.arange(12) if positions is None else positions}
    about = {}
    if grid is not None:
        of_cells = Geometry(np.zeros((12, 12)), np.ones(12, dtype=int), positions, grid=grid)
        write_geometry(of_cells, folder / "geometry.npz")
    if methods:
        about |= {"methods": methods, "held_out": {}}
    save_file(
        {k: np.ascontiguousarray(v) for k, v in (tensors | more).items()},
        folder / "encoding.safetensors",
        metadata={"posgeom": json.dumps(about)},
    )
    return folder


class TestNumbers:
    @both
    @given(data=st.data())
    @settings(max_examples=40, deadline=None)
    def test_each_token_gets_its_row(self, kind, data):
        batch, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
        shape = data.draw(st.sampled_from([(length,), (batch, length), (1, length)]))
        count = int(np.prod(shape))
        p = np.array(data.draw(st.lists(st.integers(0, 11), min_size=count, max_size=count)))
        x = np.random.default_rng(length).standard_normal((batch, length, 8))
        ours = layers()[kind].double()(torch.from_numpy(x), torch.tensor(p.reshape(shape)))
        wanted = x + (A @ B.T)[p.reshape(shape)]
        np.testing.assert_allclose(ours.detach().numpy(), wanted, atol=1e-6)

    @both
    def test_implied_positions(self, kind):
        layer, x = layers()[kind], torch.randn(2, 7, 8, generator=torch.manual_seed(0))
        assert torch.equal(layer(x), layer(x, torch.arange(7)))
        assert torch.equal(layer(x[0]), layer(x)[0])
        torch.testing.assert_close(layer.table()[:7], (layer(x) - x)[0], atol=1e-5, rtol=0)

    def test_factors_hold_r_times_n_plus_d(self):
        layer = LowRankPositionalEncoding(A, B)
        assert sum(p.numel() for p in layer.parameters()) == 3 * (12 + 8)
        assert not list(LowRankPositionalEncoding(A, B, trainable=False).parameters())

    @both
    def test_frozen_and_trained_share_their_names(self, kind):
        frozen, trained = layers(trainable=False)[kind], layers()[kind]
        with torch.no_grad():
            for p in trained.parameters():
                p.mul_(2)
        frozen.load_state_dict(trained.state_dict())
        torch.testing.assert_close(frozen.table(), trained.table())

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    @both
    def test_the_tokens_keep_their_dtype(self, kind, dtype):
        x = torch.zeros(1, 4, 8, dtype=dtype)
        assert layers()[kind](x).dtype == layers()[kind].to(dtype)(x).dtype == dtype

    def test_a_table_has_the_dtype_it_comes_in(self):
        assert TablePositionalEncoding(torch.ones(2, 2).bfloat16()).weight.dtype == torch.bfloat16
        assert TablePositionalEncoding(np.ones((2, 2))).weight.dtype == torch.float32

    @both
    def test_gradients(self, kind):
        layer = layers()[kind].double()
        x = torch.zeros(2, 3, 8, dtype=torch.float64)
        p = torch.tensor([[0, 1, 2], [5, 0, 0]])

        def f(*values):
            names = [name for name, _ in layer.named_parameters()]
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, p))

        values = tuple(v.detach().requires_grad_() for v in layer.parameters())
        assert torch.autograd.gradcheck(f, values)

    def test_offset_is_the_row_of_position_0(self):
        layer, x = TablePositionalEncoding(A @ B.T, offset=2), torch.zeros(10, 8)
        torch.testing.assert_close(layer(x), layer.weight[2:])
        with pytest.raises(PosgeomError, match="position 10 came, the table knows 0 to 9"):
            layer(torch.zeros(11, 8))


class TestPastTheEnd:
    @both
    def test_names_the_position_and_what_to_do(self, kind):
        layer = layers()[kind]
        message = "position 12 came, the table knows 0 to 11; .*posgeom design --extend"
        with pytest.raises(PosgeomError, match=message):
            layer(torch.zeros(1, 13, 8))
        with pytest.raises(PosgeomError, match=message):
            layer(torch.zeros(2, 2, 8), torch.tensor([[0, 11], [12, 40]]))
        with pytest.raises(PosgeomError, match="position -1 came"):
            layer(torch.zeros(1, 1, 8), torch.tensor([-1]))

    @pytest.mark.parametrize("below", [-1, -2, -3, -10, -(2**40)])
    @pytest.mark.parametrize("offset", [0, 2])
    @pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
    def test_below_0_there_is_no_row(self, below, offset, dtype):
        """Not the padding's, which stands before that of position 0, nor one from the end."""
        if dtype == torch.int32 and below < -(2**31):
            pytest.skip("no such number in 32 bits")
        layer = TablePositionalEncoding(A @ B.T, offset=offset)
        p = torch.tensor([[0, 1], [2, below]], dtype=dtype)
        with pytest.raises(PosgeomError, match=f"position {below} came, the table knows 0 to"):
            layer(torch.zeros(2, 2, 8), p)

    def test_a_hidden_padding_row_is_read_by_no_position(self):
        """Its numbers may be anything."""
        rows = A @ B.T
        rows[:2] = 1e30
        layer = TablePositionalEncoding(rows, offset=2, trainable=False)
        assert float(layer(torch.zeros(10, 8), torch.arange(10)).abs().max()) < 1e3

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method:DeprecationWarning")  # inductor's
    @pytest.mark.parametrize("backend", ["eager", "inductor"])
    def test_compiled_code_stops_below_0(self, backend):
        """Where a generated kernel would count a negative index from the end of the table."""
        if backend == "inductor" and not shutil.which("g++"):
            pytest.skip("inductor needs a compiler")
        left_out = {"positions": [0, 1, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14]}
        for options in ({"offset": 2}, {}, left_out):
            torch._dynamo.reset()
            layer = TablePositionalEncoding(A @ B.T, trainable=False, **options)
            compiled = torch.compile(layer, backend=backend, fullgraph=True)
            x, known = torch.zeros(1, 2, 8), torch.tensor([1, 3])
            torch.testing.assert_close(compiled(x, known), layer(x, known))
            for missing in (-1, -2, 40, *([2] if "positions" in options else ())):
                with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                    compiled(x, torch.tensor([0, missing]))

    @pytest.mark.slow
    @both
    def test_compiled_code_tells_too(self, kind):
        torch._dynamo.reset()
        compiled = torch.compile(layers()[kind], backend="eager", fullgraph=True)
        assert compiled(torch.zeros(1, 12, 8)).shape == (1, 12, 8)
        for p in (12, -1):
            with pytest.raises(IndexError):
                compiled(torch.zeros(1, 1, 8), torch.tensor([p]))
        with pytest.raises(Exception, match="position 12 came"):
            compiled(torch.zeros(1, 13, 8))

    def test_positions_that_a_design_left_out(self):
        known = np.array([0, 1, 3, 4, 7])
        layer = LowRankPositionalEncoding(A[:5], B, positions=known)
        x = torch.zeros(5, 8)
        torch.testing.assert_close(layer(x, torch.tensor(known)), layer.table())
        with pytest.raises(PosgeomError, match="position 2 came, which has no row"):
            layer(x)
        with pytest.raises(PosgeomError, match="position 8 came, the table knows 0 to 7"):
            layer(x, torch.arange(4, 9))

    @pytest.mark.slow
    def test_compiled_code_tells_of_those_left_out(self):
        torch._dynamo.reset()
        known, x = np.array([0, 1, 3, 4, 7]), torch.zeros(5, 8)
        layer = LowRankPositionalEncoding(A[:5], B, positions=known)
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, torch.tensor(known)), layer.table())
        with pytest.raises(IndexError):
            compiled(x)


class TestPositions:
    def test_padding(self):
        mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
        wanted = [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4]]
        assert padded_positions(mask).tolist() == wanted
        assert padded_positions(mask.bool()).tolist() == wanted

    @given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6))
    @settings(deadline=None)
    def test_packing(self, lengths):
        numbers = np.repeat(np.arange(len(lengths)) % 2, lengths)
        wanted = np.concatenate([np.arange(n) for n in lengths])
        assert packed_positions(torch.tensor(numbers)).tolist() == wanted.tolist()
        both = packed_positions(torch.tensor(np.stack([numbers, numbers * 0])))
        assert both.tolist() == [wanted.tolist(), list(range(len(numbers)))]

    @pytest.mark.parametrize(
        "mask", [torch.tensor([[0.0, -torch.inf]]), torch.tensor([[0, 2]]), torch.ones(1, 1, 2, 2)]
    )
    def test_masks_that_are_none(self, mask):
        with pytest.raises(PosgeomError, match="a mask came"):
            padded_positions(mask)

    @pytest.mark.parametrize(
        "documents", [torch.tensor([0.0, torch.nan]), torch.tensor(3), torch.zeros(2).cfloat()]
    )
    def test_documents_without_numbers(self, documents):
        with pytest.raises(PosgeomError, match="give the whole number of its document"):
            packed_positions(documents)

    @both
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
    def test_of_a_kind_that_numbers_no_row(self, kind, dtype):
        with pytest.raises(PosgeomError, match="give whole numbers"):
            layers()[kind](torch.zeros(1, 3, 8), torch.zeros(3, dtype=dtype))

    @both
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
    def test_of_few_bits(self, kind, dtype):
        layer, p = layers()[kind], torch.tensor([0, 5, 11])
        x = torch.zeros(3, 8)
        assert torch.equal(layer(x, p.to(dtype)), layer(x, p))

    @both
    def test_on_another_device(self, kind):
        p = torch.zeros(3, dtype=torch.int64, device="meta")
        with pytest.raises(PosgeomError, match=r"came on meta for .* cpu; give positions\.to"):
            layers()[kind](torch.zeros(2, 3, 8), p)

    @both
    @pytest.mark.parametrize(
        "positions", [torch.arange(4), torch.zeros(3, 3, dtype=int), torch.zeros(1, 1, 3)]
    )
    def test_of_another_shape(self, kind, positions):
        with pytest.raises(PosgeomError, match=r"give \(3,\) or \(2, 3\)"):
            layers()[kind](torch.zeros(2, 3, 8), positions)

    @both
    def test_that_are_no_numbers_of_rows(self, kind):
        for p in (torch.zeros(3), torch.zeros(3, dtype=bool)):
            with pytest.raises(PosgeomError, match="give whole numbers"):
                layers()[kind](torch.zeros(3, 8), p)


class TestModules:
    @both
    def test_copies_and_states(self, kind, tmp_path):
        layer = layers()[kind]
        torch.save(layer.state_dict(), tmp_path / "state.pt")
        with torch.device("meta"):
            empty = layers()[kind]
        assert all(p.is_meta for p in empty.parameters())
        other = empty.to_empty(device="cpu")
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        for same in (other, copy.deepcopy(layer)):
            assert torch.equal(same.table(), layer.table())

    def test_left_out_positions_are_saved_with_the_state(self):
        layer = LowRankPositionalEncoding(A[:3], B, positions=[0, 2, 5])
        with torch.device("meta"):
            other = LowRankPositionalEncoding(A[:3], B, positions=[0, 2, 5])
        other.load_state_dict(layer.state_dict(), assign=True)
        x, p = torch.zeros(2, 8), torch.tensor([5, 0])
        assert torch.equal(other(x, p), layer(x, p))

    @pytest.mark.slow
    @both
    def test_whole_graph(self, kind):
        torch._dynamo.reset()
        layer = layers()[kind]
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        x = torch.randn(2, 7, 8, generator=torch.manual_seed(1))
        for p in (None, torch.tensor([[0, 1, 2, 0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 11]])):
            torch.testing.assert_close(compiled(x, p), layer(x, p))

    @both
    def test_values_are_its_own(self, kind):
        rows, factor = torch.ones(3, 2), torch.ones(4, 2)
        layer = [TablePositionalEncoding(rows), LowRankPositionalEncoding(rows, factor)][kind]
        before = layer.table().detach().clone()
        rows.zero_()
        assert torch.equal(layer.table(), before)


class TestFromEncoding:
    @pytest.mark.parametrize("cls", [TablePositionalEncoding, LowRankPositionalEncoding])
    def test_a_formula(self, cls):
        e = make_encoding("sinusoidal:dim=8")
        np.testing.assert_allclose(
            cls.from_encoding(e, 20).table().detach(), e.table(np.arange(20)), atol=2e-6
        )
        with pytest.raises(PosgeomError, match="defined everywhere; say for which length"):
            cls.from_encoding(e)
        with pytest.raises(PosgeomError, match="is no table"):
            cls.from_encoding(make_encoding("rope"), 20)

    def test_formulas_are_frozen_and_tables_trained(self):
        e = make_encoding("sinusoidal:dim=8")
        assert not list(TablePositionalEncoding.from_encoding(e, 5).parameters())
        learned = FixedTable(rows=A @ B.T)
        assert len(list(TablePositionalEncoding.from_encoding(learned).parameters())) == 1

    def test_factors_have_the_rank_of_the_table(self):
        learned = FixedTable(rows=A @ B.T)
        layer = LowRankPositionalEncoding.from_encoding(learned)
        assert (layer.A.shape, layer.B.shape) == ((12, 3), (8, 3))
        np.testing.assert_allclose(layer.table().detach(), A @ B.T, atol=2e-6)

    def test_a_smaller_rank_is_the_nearest(self):
        """What is lost is the last singular value."""
        layer = LowRankPositionalEncoding.from_encoding(FixedTable(rows=A @ B.T), rank=2).double()
        lost = np.linalg.norm(layer.table().detach().numpy() - A @ B.T)
        assert lost == pytest.approx(np.linalg.svd(A @ B.T)[1][2], rel=1e-5)
        with pytest.raises(PosgeomError, match="rank 9 came"):
            LowRankPositionalEncoding.from_encoding(FixedTable(rows=A @ B.T), rank=9)

    def test_left_out_positions_stay_left_out(self):
        e = FixedTable(rows=A[:4] @ B.T, index=np.array([0, 2, 3, 9]))
        for layer in (
            TablePositionalEncoding.from_encoding(e, 4),
            LowRankPositionalEncoding.from_encoding(e, 4),
        ):
            np.testing.assert_allclose(layer.table().detach(), A[:3] @ B.T, atol=2e-6)
            with pytest.raises(PosgeomError, match="position 1 came, which has no row"):
                layer(torch.zeros(2, 8))


class TestFromRun:
    @pytest.mark.parametrize("cls", [TablePositionalEncoding, LowRankPositionalEncoding])
    def test_an_extended_table_has_all_its_positions(self, cls, tmp_path):
        longer = RANDOM.standard_normal((20, 3))
        more = {"A": longer, "A_made": A, "B_made": B, "A_extended": longer}
        more["positions"] = np.arange(20)
        write_run(tmp_path, methods=["given"] * 12 + ["harmonic"] * 8, **more)
        layer = cls.from_run(tmp_path)
        np.testing.assert_allclose(layer.table().detach(), longer @ B.T, atol=2e-6)
        assert layer(torch.zeros(1, 20, 8)).shape == (1, 20, 8)

    def test_grids_are_numbered_row_by_row(self, tmp_path):
        cells = np.array([[i, j] for i in range(3) for j in range(1, 5)])
        layer = TablePositionalEncoding.from_run(write_run(tmp_path, positions=cells, grid=(3, 5)))
        at = torch.tensor([row * 5 + column for row, column in cells])
        np.testing.assert_allclose(layer(torch.zeros(12, 8), at).detach(), A @ B.T, atol=2e-6)

    def test_left_out_positions(self, tmp_path):
        layer = LowRankPositionalEncoding.from_run(
            write_run(tmp_path, positions=np.append(np.arange(11), 13)), trainable=False
        )
        assert not list(layer.parameters())
        with pytest.raises(PosgeomError, match="position 11 came, which has no row"):
            layer(torch.zeros(12, 8))

    def test_a_folder_that_holds_none(self, tmp_path):
        with pytest.raises(PosgeomError, match="holds no posgeom encoding"):
            LowRankPositionalEncoding.from_run(tmp_path)

    def test_a_real_run(self, text_file, tmp_path, no_report):
        design = posgeom.design(text_file, positions=8, dim=16, extend_to=12)
        design.save(tmp_path / "run")
        layer = LowRankPositionalEncoding.from_run(tmp_path / "run")
        wanted = design.extended.table()
        assert len(wanted) == 12
        ours = layer(torch.zeros(1, 12, 16)).detach()[0]
        np.testing.assert_allclose(ours, wanted, atol=1e-6 * np.abs(wanted).max())


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: TablePositionalEncoding(np.ones(3)), r"table came as .* shape \(3,\)"),
            (lambda: TablePositionalEncoding(np.ones((0, 3))), "give a matrix"),
            (lambda: TablePositionalEncoding(torch.ones(2, 2, dtype=int)), "give a matrix"),
            (lambda: TablePositionalEncoding([[np.nan]]), "NaN or infinity"),
            (lambda: LowRankPositionalEncoding(A, B[:, :2]), "of one rank r"),
            (lambda: LowRankPositionalEncoding(A, B, positions=[0, 1]), "give 12 whole numbers"),
            (lambda: TablePositionalEncoding(A, positions=[0] * 12), "hold a number twice"),
            (lambda: TablePositionalEncoding(A, positions=range(-1, 11)), "below 0"),
            (lambda: TablePositionalEncoding(A, positions=np.arange(12.0)), "whole numbers"),
        ],
    )
    def test_numbers(self, make, message):
        with pytest.raises(PosgeomError, match=message):
            make()

    @both
    @pytest.mark.parametrize("shape", [(8,), (2, 3, 7), (1, 2, 3, 8)])
    def test_tokens(self, kind, shape):
        with pytest.raises(PosgeomError, match=r"give \(batch, length, 8\)"):
            layers()[kind](torch.zeros(shape))
