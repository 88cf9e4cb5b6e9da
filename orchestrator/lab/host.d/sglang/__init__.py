"""A small engine laid out like SGLang, for the simulated host. Our own writing.

It reads the same flags, variables and gates, starts the same processes under the same titles, logs the same phases and
answers the same paths; the arithmetic is a cost model (`lab_hardware`), and the answers come from a toy (`srt/models`).
"""
