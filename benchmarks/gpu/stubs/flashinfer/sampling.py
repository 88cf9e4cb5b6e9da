# ruff: noqa - runs inside the engine, whose names and signatures it repeats
"""Import-only: ``--sampling-backend pytorch`` never calls these."""


def _absent(name):
    def call(*args, **kwargs):
        raise RuntimeError(f"flashinfer.sampling.{name} is a stand-in: this rig has no flashinfer")

    return call


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _absent(name)
