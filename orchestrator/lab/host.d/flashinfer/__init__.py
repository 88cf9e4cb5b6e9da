"""A stand-in for FlashInfer: the JIT's architecture check and the fused all-reduce behind it. Our own writing."""

__version__ = "0.6.7.post3"
