"""The paper on training: a learned table while it learns, and whether low stress helps a model."""
