# ruff: noqa - runs inside the engine, whose names and signatures it repeats
"""Stand-in: only ``flashinfer.sampling`` exists, because SGLang imports it unconditionally on CUDA."""
