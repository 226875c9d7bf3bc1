from .corpus import Corpus, open_corpus
from .counting import count_positions
from .counts import PositionCounts
from .design import Design, design
from .encodings import Encoding, make_encoding
from .errors import PosgeomError
from .geometry import Geometry, estimate_geometry, true_geometry
from .mds import classical_mds
from .pieces import Document
from .scoring import score_encodings
from .synthetic import SyntheticCorpus

__version__: str

__all__ = [
    "Corpus",
    "Design",
    "Document",
    "Encoding",
    "Geometry",
    "PosgeomError",
    "PositionCounts",
    "SyntheticCorpus",
    "classical_mds",
    "count_positions",
    "design",
    "estimate_geometry",
    "make_encoding",
    "open_corpus",
    "score_encodings",
    "true_geometry",
]
