"""The paper's tables and theorems, computed again and judged.

G. Cirrincione, "On the Geometry of Positional Encodings in Transformers", arXiv 2604.05217 (2026).
"""
