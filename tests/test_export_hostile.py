"""Exported files spoilt by chance or on purpose: one line, little memory, and nothing run."""

import io
import json
import pickle
import struct
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from posgeom import PosgeomError, make_encoding
from posgeom.emit import read_tensors
from posgeom.emit.emission import Emission, describe, digest
from posgeom.emit.export import export
from posgeom.emit.forms import tensors_of
from posgeom.emit.reading import read_emission
from posgeom.encodings import FixedTable, Shaw, T5Bias

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((6, 4))
MEMORY = 32 << 20  # bytes, which no reading of a small file may exceed


def emission(encoding, n=6):
    tensors = tensors_of(encoding, n)
    return Emission(encoding, tensors, describe(encoding, tensors))


def sealed(about, **arrays):
    """A passport as bytes of uint8, with the digest that belongs to it: the attacker can hash."""
    about = about | {"sha256": digest(about, arrays)}
    return np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)


def npz(passport=None, **arrays):
    out = io.BytesIO()
    passport = sealed({"encoding": "mds"}, **arrays) if passport is None else passport
    np.savez(out, passport=passport, **arrays)
    return out.getvalue()


def pt(**values):
    torch = pytest.importorskip("torch")
    out = io.BytesIO()
    torch.save(values, out)
    return out.getvalue()


def about(spec=None, **more):
    return {"encoding": "e", "spec": spec} | more


def of_spec(spec, **arrays):
    return npz(sealed(about(spec), **arrays), **arrays)


def told(more, **arrays):
    return npz(sealed(about(**more), **arrays), **arrays)


def safetensors(header, data=b"", metadata=True):
    """A file by hand: whatever the header says."""
    if isinstance(header, dict):
        if metadata:
            header = {"__metadata__": {"posgeom": '{"encoding": "mds"}'}} | header
        header = json.dumps(header)
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape, start=0, end=16, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def zipped(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as file:
        warnings.simplefilter("ignore")  # of names that come twice
        for name, content in members:
            file.writestr(name, content)
    return out.getvalue()


def npy(descr, shape, data=b""):
    """An .npy by hand."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz_of(*members):
    kept = ("passport.npy", npy("|u1", "(19,)", b'{"encoding": "mds"}'))
    return zipped([*members, kept])


def overlapping():
    """A thousand members that are one and the same piece of the file."""
    content = zipped([("table.npy", npy("<f8", "(2048,)", bytes(16384)))])
    begin = content.index(b"PK\x01\x02")
    entry, tail = content[begin : content.index(b"PK\x05\x06")], content[-22:]
    names = (entry.replace(b"table.npy", b"t%04d.npy" % k) for k in range(1000))
    size = struct.pack("<HHLL", 1000, 1000, 1000 * len(entry), begin)
    return content[:begin] + b"".join(names) + tail[:8] + size + tail[20:]


class Shout:
    """A pickle of this writes a file when it is opened."""

    def __reduce__(self):
        return (open, ("ran-when-opened", "w"))


class Swell:
    """A pickle of this takes 64 GB when it is opened."""

    def __reduce__(self):
        return (bytearray, (64 << 30,))


def wide_view():
    """One number that says it is 10^10."""
    torch = pytest.importorskip("torch")
    return pt(table=torch.zeros(1, 1).expand(100_000, 100_000), passport=torch.zeros(2))


def scripted():
    torch = pytest.importorskip("torch")
    out = io.BytesIO(pt(table=torch.ones(2, 2)))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("archive/constants.pkl", pickle.dumps(()))
    return out.getvalue()


def foreign_pickle():
    """A state dict whose pickle is exchanged for one that calls."""
    torch = pytest.importorskip("torch")
    members = []
    with zipfile.ZipFile(io.BytesIO(pt(table=torch.ones(2, 2)))) as file:
        for name in file.namelist():
            shout = pickle.dumps({"table": Shout()}, protocol=4)
            members.append((name, shout if name.endswith("data.pkl") else file.read(name)))
    return zipped(members)


DEEP = '{"passport": {"encoding": "e"}, "tensors": {"table": ' + "[" * 100_000
NAN = '{"passport": {"encoding": "e"}, "tensors": {"table": [[NaN]]}}'
HUGE = '{"passport": {"encoding": "e"}, "tensors": {"table": [[1e999]]}}'
RAGGED = '{"passport": {"encoding": "e"}, "tensors": {"table": [[1], [1, 2]]}}'
TWICE = '{"passport": {"encoding": "e"}, "tensors": {"table": [[1]], "table": [[2]]}}'
UNSEALED = np.frombuffer(b'{"encoding": "mds"}', dtype=np.uint8)
NOBODY = np.frombuffer(b"[1]", dtype=np.uint8)
θ = make_encoding("rope:dim=4").inv_freq

ATTACKS = {
    # -- whatever format
    "nothing": (lambda: b"", "cannot be read"),
    "noise": (lambda: RANDOM.bytes(200), "cannot be read"),
    "a bare pickle": (lambda: pickle.dumps(Shout()), "cannot be read"),
    # -- safetensors
    "a huge header": (lambda: struct.pack("<Q", 1 << 60) + b"{}", "header of 1,152,921,504"),
    "a header of 100 MB": (
        lambda: struct.pack("<Q", 99_000_000) + b"{" + b" " * 98_999_998 + b"}",
        "header of 99,000,000 bytes",
    ),
    "no passport in the header": (
        lambda: safetensors({"table": tensor([2, 2])}, bytes(16), metadata=False),
        "it has no passport",
    ),
    "a tensor twice": (
        lambda: safetensors(
            '{"__metadata__":{"posgeom":"{}"},"t":' + json.dumps(tensor([2, 2])) + ',"t":'
            '{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
            bytes(16),
        ),
        "a key comes twice",
    ),
    "two passports": (
        lambda: safetensors('{"__metadata__":{"posgeom":"{}","posgeom":"{}"}}'),
        "a key comes twice",
    ),
    "overlapping tensors": (
        lambda: safetensors({"a": tensor([2, 2]), "b": tensor([2, 2], 8, 24)}, bytes(24)),
        "cannot be read",
    ),
    "offsets past the end": (
        lambda: safetensors({"table": tensor([4, 2], 0, 32)}, bytes(16)),
        "cannot be read",
    ),
    "offsets that run back": (
        lambda: safetensors({"table": tensor([2, 2], 16, 0)}, bytes(16)),
        "cannot be read",
    ),
    "a hole between tensors": (
        lambda: safetensors({"table": tensor([2, 2], 8, 24)}, bytes(24)),
        "cannot be read",
    ),
    "a shape below 0": (
        lambda: safetensors({"table": tensor([-2, -2])}, bytes(16)),
        "cannot be read",
    ),
    "a shape past 64 bits": (
        lambda: safetensors({"table": tensor([1 << 40, 1 << 40], 0, 0)}),
        "cannot be read",
    ),
    "a shape of fractions": (
        lambda: safetensors({"table": tensor([2.5, 1.6])}, bytes(16)),
        "cannot be read",
    ),
    "a type of objects": (
        lambda: safetensors({"table": tensor([2, 1], dtype="O")}, bytes(16)),
        "cannot be read",
    ),
    "bytes behind the tensors": (
        lambda: safetensors({"table": tensor([2, 2])}, bytes(99)),
        "cannot be read",
    ),
    # -- npz
    "a pickle in npz": (
        lambda: npz(NOBODY, table=np.array([Shout()], dtype=object)),
        "holds a pickle, which can run code",
    ),
    "a type of objects, by hand": (
        lambda: npz_of(("table.npy", npy("|O", "(1,)", pickle.dumps(Shout())))),
        "holds a pickle, which can run code",
    ),
    "a header that is code": (
        lambda: npz_of(("table.npy", npy("<f8", "open('ran-when-opened', 'w')"))),
        "cannot be read",
    ),
    "objects in a structure": (
        lambda: npz_of(("table.npy", npy([("a", "|O")], "(1,)", bytes(8)))),
        "holds a pickle, which can run code",
    ),
    "a bomb": (
        lambda: zipped([("table.npy", bytes(1 << 26))], zipfile.ZIP_DEFLATED),
        "its members are compressed",
    ),
    "a thousand members in one place": (overlapping, "larger than the file"),
    "a shape without its bytes": (
        lambda: npz_of(("table.npy", npy("<f8", f"({1 << 20}, {1 << 14})"))),
        r"of shape \(1048576, 16384\) and has 0 bytes",
    ),
    "a shape past 64 bits, npz": (
        lambda: npz_of(("table.npy", npy("<f8", f"({1 << 40}, {1 << 40})"))),
        "and has 0 bytes",
    ),
    "a shape below 0, npz": (
        lambda: npz_of(("table.npy", npy("<f8", "(-2, -2)", bytes(32)))),
        "cannot be read|one or two axes|no passport|changed since",
    ),
    "a member twice": (
        lambda: npz_of(*[("table.npy", npy("<f8", "(1, 1)", bytes(8)))] * 2),
        "two of its members have one name",
    ),
    "a header of 16 MB, npz": (
        lambda: npz_of(("t.npy", b"\x93NUMPY\x02\x00" + struct.pack("<L", 1 << 24) + b" " * 99)),
        "not in version 1.0",
    ),
    "a member that is no array": (lambda: npz_of(("a.txt", b"hello")), "cannot be read"),
    "no passport": (lambda: zipped([("t.npy", npy("<f8", "(1, 1)", bytes(8)))]), "no passport"),
    "a passport of nobody": (lambda: npz(NOBODY, table=ROWS), "no passport of an encoding"),
    "a passport that was changed": (
        lambda: npz(sealed({"encoding": "mds"}, table=ROWS), table=ROWS + 1),
        "was changed since it was exported",
    ),
    "a passport without a digest": (
        lambda: npz(UNSEALED, table=ROWS),
        "was changed since it was exported",
    ),
    # -- torch
    "a pickle in pt": (lambda: pt(table=Shout()), "names io open, which is no tensor"),
    "64 GB in pt": (lambda: pt(table=Swell()), "bytearray, which is no tensor"),
    "another pickle in pt": (foreign_pickle, "has a STACK_GLOBAL"),
    "a wide view in pt": (wide_view, "is a view of shape"),
    "a script": (scripted, "cannot be read"),
    # -- json
    "another's json": (lambda: b'{"a": 1}', "cannot be read"),
    "deep json": (lambda: DEEP.encode(), "cannot be read"),
    "NaN in json": (lambda: NAN.encode(), "NaN is no number"),
    "infinity in json": (lambda: HUGE.encode(), "holds NaN or infinity"),
    "ragged json": (lambda: RAGGED.encode(), "cannot be read"),
    "a key twice in json": (lambda: TWICE.encode(), "a key comes twice"),
    "words in json": (
        lambda: TWICE.replace('[[1]], "table": [[2]]', '[["a"]]').encode(),
        "give numbers, one or two axes",
    ),
    "numbers without end": (
        lambda: TWICE.replace('[[1]], "table": [[2]]', "[[" + "9" * 400 + "]]").encode(),
        "give numbers, one or two axes",
    ),
    # -- numbers
    "one axis": (lambda: npz(table=ROWS[0]), r"of shape \(4,\)"),
    "three axes": (lambda: npz(table=ROWS[None]), "one or two axes"),
    "no rows": (lambda: npz(table=ROWS[:0]), "one or two axes"),
    "NaN": (lambda: npz(table=ROWS * np.nan), "holds NaN or infinity"),
    "infinity in factors": (lambda: npz(table=ROWS, A=ROWS * np.inf), "A of .* holds NaN or inf"),
    "infinite frequencies": (
        lambda: of_spec("rope:dim=4", inv_freq=θ * np.inf),
        "inv_freq of .* holds NaN or infinity",
    ),
    "text": (lambda: npz(NOBODY, table=np.array([["a"]])), "no passport|give numbers"),
    "complex numbers": (lambda: npz(UNSEALED, table=ROWS.astype(complex)), "give numbers"),
    "too few positions": (lambda: npz(table=ROWS, positions=np.arange(5)), "do not number its 6"),
    "positions out of order": (
        lambda: npz(table=ROWS, positions=np.arange(6)[::-1]),
        "do not number its 6 rows",
    ),
    "positions below 0": (
        lambda: npz(table=ROWS, positions=np.arange(-1, 5)),
        "do not number its 6 rows",
    ),
    "a position past memory": (
        lambda: npz(table=ROWS, positions=np.append(np.arange(5), 1 << 60)),
        "do not number its 6 rows",
    ),
    "a position past 63 bits": (
        lambda: npz(table=ROWS[:1], positions=np.array([(1 << 63) + 5], dtype=np.uint64)),
        "do not number its 1 rows|cannot be read",
    ),
    "nothing known": (lambda: npz(other=ROWS), "no encoding is made"),
    # -- passports that lie
    "other numbers than its spec": (
        lambda: of_spec("rope:dim=4", inv_freq=np.ones(2)),
        "not those of its spec rope:dim=4",
    ),
    "another decay than its spec": (
        lambda: of_spec("xpos:dim=4", inv_freq=θ, decay=np.array([0.9, 0.8])),
        "not those of its spec xpos:dim=4",
    ),
    "a spec without its numbers": (
        lambda: of_spec("xpos:dim=4", inv_freq=θ),
        "not those of its spec xpos:dim=4",
    ),
    "a spec that names a file": (
        lambda: of_spec("learned:/etc/passwd", table=ROWS),
        "names another file, which is not opened",
    ),
    "a spec that names a model": (
        lambda: of_spec("model:/", table=ROWS),
        "names another file, which is not opened",
    ),
    "a spec with a file in it": (
        lambda: of_spec("t5:table=/etc/passwd", bias_table=ROWS),
        "names another file, which is not opened",
    ),
    "a spec of 10^12 dimensions": (
        lambda: of_spec("rope:dim=1000000000000", inv_freq=θ),
        "sizes past",
    ),
    "a spec of many dimensions": (
        lambda: of_spec("sinusoidal:dim=1000000", table=np.ones((99_999, 1))),
        "not those of its spec",
    ),
    "a spec of many heads": (
        lambda: of_spec("alibi:heads=1000000", slopes=np.ones(3)),
        "not those of its spec",
    ),
    "a bias of many terms": (
        lambda: of_spec("sandwich:dim=1000000", offsets=np.arange(-9_999, 10_000), bias=np.ones(3)),
        "not those of its spec",
    ),
    "a spec that is none": (lambda: of_spec("nonsense", table=ROWS), "'nonsense' is not known"),
    "a spec that is a number": (lambda: of_spec(7, table=ROWS), "'7' is not known"),
    "a table that says it is a rope": (
        lambda: told({"family": "rope"}, table=ROWS),
        "says that it is of the family 'rope', its numbers are of table",
    ),
    "a rope that says it is xpos": (
        lambda: npz(sealed(about("rope:dim=4", family="xpos"), inv_freq=θ), inv_freq=θ),
        "says that it is of the family 'xpos', its numbers are of rope",
    ),
    "a family that is a list": (lambda: told({"family": ["mds"]}, table=ROWS), "of the family"),
    "another pairing": (
        lambda: npz(sealed(about("rope:dim=4", pairing="halves"), inv_freq=θ), inv_freq=θ),
        "says pairing 'halves', its numbers 'interleaved'",
    ),
    "another attention factor": (
        lambda: npz(sealed(about("rope:dim=4", attention_factor=2.0), inv_freq=θ), inv_freq=θ),
        "says attention_factor 2.0, its numbers 1.0",
    ),
    "another shape": (lambda: told({"shape": [6, 5]}, table=ROWS), r"says shape \[6, 5\]"),
    "another offset": (lambda: told({"offset": 2}, table=ROWS), "says offset 2, its numbers 0"),
    "more positions": (lambda: told({"positions": 7}, table=ROWS), "says positions 7"),
    "a distance that is a word": (
        lambda: told({"max_distance": "far"}, bias_table=ROWS),
        "a whole number and true or false are wanted",
    ),
    "a distance too near": (
        lambda: told({"max_distance": 1}, bias_table=ROWS),
        "t5 came with max_distance=1",
    ),
    "causal by a number": (lambda: told({"causal": 1}, bias_table=ROWS), "causal 1"),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_a_hostile_file_is_refused_in_one_line_and_not_run(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, says = ATTACKS[what]
    Path("e").write_bytes(content())
    tracemalloc.start()
    try:
        with pytest.raises(PosgeomError, match=says) as refused:
            read_emission("e")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert [p.name for p in tmp_path.iterdir()] == ["e"]
    assert most < MEMORY, f"{most >> 20} MB"


def test_the_pickle_would_have_run(tmp_path, monkeypatch):
    """The attack works where it is let in, so that the tests above say something."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Shout())).close()
    assert Path("ran-when-opened").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of Unix")
def test_links_lead_to_files_or_nowhere(tmp_path):
    import os

    export(emission(FixedTable(rows=ROWS)), "npz", tmp_path / "e")
    (tmp_path / "link").symlink_to("e")
    np.testing.assert_array_equal(
        read_emission(tmp_path / "link").tensors["table"], ROWS.astype(np.float32)
    )
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "zeros", "pipe", "nowhere"):
        with pytest.raises(PosgeomError, match="is no file"):
            read_emission(tmp_path / name)


# -- runs -----------------------------------------------------------------------------------------

A, B = RANDOM.standard_normal((6, 2)), RANDOM.standard_normal((4, 2))
GOOD = {"A": A, "B": B, "eigenvalues": np.ones(6), "positions": np.arange(6)}


def with_nan(x):
    broken = x.copy()
    broken.flat[-1] = np.nan
    return broken


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"A": with_nan(A)}, "A holds NaN or infinity"),
        ({"B": B * np.inf}, "B holds NaN or infinity"),
        ({"eigenvalues": with_nan(np.ones(6))}, "eigenvalues holds NaN or infinity"),
        ({"B": B[:, :1]}, r"A \(6, 2\) and B \(4, 1\) are not"),
        ({"A": A[0]}, r"A \(2,\) and B \(4, 2\) are not"),
        ({"A": A[:0]}, r"A \(0, 2\) and B \(4, 2\) are not"),
        ({"A": None}, "holds no posgeom encoding: 'A'"),
    ],
)
def test_a_run_s_tensors_that_cannot_be_are_refused(changed, says, tmp_path):
    file = tmp_path / "encoding.safetensors"
    save_file({k: v for k, v in GOOD.items() if v is not None}, file, {"posgeom": "{}"})
    np.testing.assert_array_equal(read_tensors(file)[0]["low_rank"].table(), A @ B.T)
    held = {k: np.ascontiguousarray(v) for k, v in (GOOD | changed).items() if v is not None}
    save_file(held, file, {"posgeom": "{}"})
    with pytest.raises(PosgeomError, match=says) as refused:
        read_tensors(file)
    assert "\n" not in str(refused.value)


# -- by chance ------------------------------------------------------------------------------------

FORMATS = ["safetensors", "npz", "torch", "json"]
KINDS = {
    "table": FixedTable(rows=ROWS, index=np.array([0, 1, 3, 4, 6, 7]), spec="mds:rank=2"),
    "rope": make_encoding("rope:dim=8,scaling=yarn,factor=4,original_length=9"),
    "xpos": make_encoding("xpos:dim=8,gamma=0.3,scale_base=99"),
    "t5": T5Bias(array=ROWS, buckets=6, max_distance=7, causal=True, spec="model:there"),
    "shaw": Shaw(array=ROWS[:5], spec="shaw:table=there.npy"),
    "kerple": make_encoding("kerple:heads=2,r1=0.5;3,r2=0.001;2"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of each kind in each format."""
    folder = tmp_path_factory.mktemp("whole")

    def content(kind, format):
        if format == "torch":
            pytest.importorskip("torch")
        file = folder / f"{kind}.{format}"
        if not file.exists():
            export(emission(KINDS[kind]), format, file)
        return file.read_bytes()

    return content


def same_or_refused(content, kind, file):
    """Whatever was done to a file: all its numbers and what it says of them, or an error."""
    file.write_bytes(content)
    made = emission(KINDS[kind])
    try:
        again = read_emission(file)
    except PosgeomError:
        return False
    assert again.passport == made.passport
    assert again.tensors.keys() == made.tensors.keys()
    for name, x in made.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], x)
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_what_was_cut_off_is_missed(format, kind, whole, tmp_path):
    """At each border: the length, the header, its end, a tensor, the directory, the last byte."""
    content = whole(kind, format)
    assert same_or_refused(content, kind, tmp_path / "e")
    places = {0, 1, 7, 8, 9, 16, len(content) // 2, *range(len(content) - 24, len(content))}
    (size,) = struct.unpack("<Q", content[:8])
    places |= {7 + size, 8 + size, 9 + size} if size < len(content) else set()
    for mark in (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"NUMPY", b'"tensors"'):
        at = content.find(mark)
        places |= {at - 1, at, at + 1, at + len(mark)} if at > 0 else set()
    for place in sorted(places & set(range(len(content)))):
        whole_still = same_or_refused(content[:place], kind, tmp_path / "e")
        assert not whole_still or (format == "json" and content[place:].strip() == b""), place


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_was_changed_is_the_same_or_refused(format, whole, tmp_path, data):
    """Bytes exchanged, cut out, doubled and put in, at one place or several."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    content = bytearray(whole(kind, format))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        how = data.draw(st.sampled_from(["bit", "byte", "cut", "double", "insert", "digit"]))
        if how == "bit":
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "byte":
            content[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del content[at : at + data.draw(st.integers(1, 40))]
        elif how == "double":
            content[at:at] = content[at : at + data.draw(st.integers(1, 40))]
        elif how == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        else:  # a number that stays one is what a checksum is for
            digits = [i for i, b in enumerate(content) if 48 <= b <= 57]
            content[digits[at % len(digits)]] = 48 + data.draw(st.integers(0, 9))
        if not content:
            break
    same_or_refused(bytes(content), kind, tmp_path / "e")
