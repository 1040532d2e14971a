"""The project's package; the version stands here alone."""

__version__ = "0.1.0"
