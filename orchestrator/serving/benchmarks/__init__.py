"""Benchmark clients behind one interface: a command to run on the host, and its result as samples, totals, values."""

from orchestrator.serving.benchmarks.plan import BenchPlan, plan_accuracy, plan_bench
from orchestrator.serving.benchmarks.reading import Reading, Unreadable, read_bench, read_score, record_of_bench

__all__ = [
    "BenchPlan",
    "Reading",
    "Unreadable",
    "plan_accuracy",
    "plan_bench",
    "read_bench",
    "read_score",
    "record_of_bench",
]
