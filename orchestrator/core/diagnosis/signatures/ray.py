"""Ray under an engine."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "ray.version",
        "abi_mismatch",
        ("Version mismatch: The cluster was started with", "The cluster was started with"),
        "Version mismatch: The cluster was started|The cluster was started with:",
        "the nodes run different versions of Ray or Python",
        "the same image on every node",
        "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.10",
        "cluster was started",
        weight=4,
        certainty="certain",
    ),
    root(
        "ray.start",
        "network_setup",
        (
            "current node timed out during startup",
            "Failed to register worker",
            "timed out during startup",
            "node is not found",
            "This node has an IP address of",
            "is not in the cluster",
            "raylet",
        ),
        "current node timed out during startup|Failed to register worker|This node has an IP address of"
        "|[Rr]aylet.{0,60}(?:timed out|failed to connect|not connect|disconnect)",
        "Ray does not come up on this node or address",
        "one address per node; VLLM_HOST_IP and the interface of the cluster",
        "Exception: The current node timed out during startup. This could happen because some of the "
        "Ray processes failed to startup.",
        "raylet started",
        weight=3,
        knobs=("VLLM_HOST_IP", "RAY_ADDRESS"),
    ),
    root(
        "ray.resources",
        "argument_error",
        (
            "Ray does not allocate any GPUs",
            "cluster resources",
            "The number of required GPUs",
            "placement group",
            "Cannot provide a placement group",
        ),
        "does not allocate any GPUs|[Cc]annot provide a placement group|[Pp]lacement group .*(?:cannot"
        "|infeasible|timed? ?out|unable)|[Ii]nfeasible.*(?:resource|placement)",
        "the cluster does not have the GPUs that were asked for, or they are taken",
        "ray status; fewer ranks or more nodes",
        "ValueError: Cannot provide a placement group of {'GPU': 16} within 1800 seconds.",
        "Creating a new placement group",
        weight=3,
    ),
)
