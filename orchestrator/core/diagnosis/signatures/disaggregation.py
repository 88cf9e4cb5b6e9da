"""Prefill and decode apart: the transfer of the KV cache and its bootstrap."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "pd.transfer",
        "pd_disaggregation",
        (
            "KVTransferError",
            "Failed to get kvcache from prefill instance",
            "Decode transfer failed",
            "Prefill transfer failed",
            "Decode handshake failed",
            "Prefill bootstrap failed",
            "bootstrap failed",
            "KVPoll",
            "Could not fetch prefill parallel info",
            "Could not fetch prefill info",
            "Request was dropped because",
            "kv transfer",
            "KV transfer",
            "KV cache transfer",
            "nixl_",
            "NIXL_ERR",
            "nixlBackendError",
            "Losing connection with prefill instance",
            "lost connection with",
            "Prefill instance with bootstrap",
            "is dead",
            "bootstrap server",
            "Bootstrap server",
            "decode instance",
            "WaitingForInput",
        ),
        "KVTransferError|Failed to get kvcache from prefill|(?:Decode|Prefill) (?:transfer|handshake"
        "|bootstrap) failed|Could not fetch prefill (?:parallel )?info|Losing connection with (?:prefill"
        "|decode) instance|(?:kv|KV)(?: cache)? transfer.{0,60}(?:fail|error|timed? ?out|abort)"
        r"|NIXL_ERR\w*|nixl\w*Error|(?:Prefill|Decode) instance .* is dead"
        "|[Bb]ootstrap server.{0,80}(?:fail|refused|not|unreachable|error|timed? ?out)"
        r"|Request \S+ timed out after .* in KVPoll",
        "the KV cache did not get from prefill to decode",
        "the other side's log; transfer back end, devices and version equal on both sides",
        "[2025-09-17 16:23:13 TP1] Decode transfer failed for request rank=1 with exception "
        "KVTransferError(bootstrap_room=16): Failed to get kvcache from prefill instance, it might be "
        "dead",
        "Aborted by AbortReq",
        weight=2,
        sticky=True,
        loud=False,
        knobs=(
            "--disaggregation-mode",
            "--disaggregation-transfer-backend",
            "--disaggregation-ib-device",
            "--disaggregation-bootstrap-port",
            "--kv-transfer-config",
        ),
    ),
    root(
        "pd.engine",
        "pd_disaggregation",
        (
            "ooncake",
            "transfer engine",
            "Transfer engine",
            "TransferEngine",
            "transfer_engine",
            "nixl",
            "NIXL",
            "NixlConnector",
            "KVConnector",
            "LMCache",
            "UCX",
        ),
        "(?:[Mm]ooncake|[Tt]ransfer ?_?[Ee]ngine|NIXL|nixl|NixlConnector|UCX).{0,120}(?:fail|error|Error"
        "|ERROR|not (?:found|supported|initial)|refused|timed? ?out|incompatible|mismatch)|(?:Error|ERROR"
        "|Failed|failed|Exception).{0,120}(?:[Mm]ooncake|[Tt]ransfer ?_?[Ee]ngine|NIXL|nixl|NixlConnector"
        "|KVConnector)",
        "the transfer engine failed or is not what the other side has",
        "the same transfer package on both sides; check its devices",
        "RuntimeError: Mooncake Transfer Engine initialization failed.",
        "Mooncake transfer engine ready",
        weight=2,
        sticky=True,
        knobs=(
            "--disaggregation-transfer-backend",
            "--disaggregation-ib-device",
            "--kv-transfer-config",
            "MC_TE_METRIC",
        ),
    ),
    root(
        "pd.frames",
        "pd_disaggregation",
        ("Error", "Exception"),
        "^(?:RuntimeError|ValueError|AssertionError|KeyError|AttributeError|TypeError|Exception"
        r"|ImportError|\w+Error)\b",
        "the disaggregation code failed",
        "versions and parallel sizes of both sides must agree",
        'Traceback (most recent call last):\n  File "/x/srt/disaggregation/prefill.py", line 351, in '
        "poll\nAssertionError: mismatch",
        "AssertionError: mismatch",
        frames="disaggregation/|kv_transfer/|mooncake|nixl|kv_connector",
        weight=2,
        certainty="possible",
        knobs=("--disaggregation-mode", "--disaggregation-transfer-backend"),
    ),
)
