"""Ports, interfaces, rendezvous, NCCL and peer-to-peer access."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, root, symptom

_IFNAMES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP", "NCCL_IB_HCA")

SIGNATURES: tuple[Signature, ...] = (
    root(
        "port.bind", "port_in_use",
        (
            "[Errno 98]", "ddress already in use", "EADDRINUSE", "is used by a process already", "errno: 98",
            "port is already allocated", "ort is already in use", "is already in use", "address in use",
        ),
        r"\[Errno 98\]|[Aa]ddress already in use|EADDRINUSE|is used by a process already|errno: 98\b"
        r"|port is already allocated|[Pp]ort (?:\d+ )?is already (?:in use|used)",
        "a port is held by another process, a leftover of ours, or by a sibling rank",
        "find the listener (ss -ltnp) and end it, or use another port; a ready line after this is false",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 18101): address "
        "already in use",
        "port 30000 is free",
        sticky=True, certainty="certain", weight=4, knobs=("--port", "--nccl-port", "--dist-init-addr"),
    ),
    root(
        "port.listen", "port_in_use",
        ("failed to listen on any local network address", "Cannot assign requested address", "EADDRNOTAVAIL"),
        "server socket has failed to listen on any local network address(?!.*EADDRINUSE.*errno: 98)",
        "the rendezvous port cannot be listened on",
        "another port, or end the leftover that holds it",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29500",
        "listening on 0.0.0.0",
        weight=4, knobs=("--nccl-port", "--dist-init-addr", "MASTER_PORT"),
    ),
    root(
        "net.bind-address", "network_setup",
        ("Cannot assign requested address", "EADDRNOTAVAIL", "errno: 99"),
        r"Cannot assign requested address|EADDRNOTAVAIL|errno: 99\b",
        "the address to bind to is not one of this host's",
        "the host's own address in --host, --dist-init-addr or VLLM_HOST_IP",
        "OSError: [Errno 99] Cannot assign requested address",
        "address assigned",
        knobs=("--host", "--dist-init-addr", "VLLM_HOST_IP"),
    ),
    root(
        "net.ifname", "network_setup",
        (
            "Unable to find address for", "no socket interface found", "No socket interface found",
            "Unable to find interface", "No interface found", "No such device", "Could not find interface",
            "makeDeviceForInterface", "makeDeviceForHostname", "unsupported gloo device", "ifa != nullptr",
            "Unable to resolve hostname",
        ),
        "Unable to find (?:address|interface) for|[Nn]o (?:socket )?interface found"
        r"|Could not find interface|makeDeviceFor\w+\(\): unsupported gloo device|ifa != nullptr"
        "|Unable to resolve hostname",
        "the interface named for the group does not exist on this host",
        "the real interface name, one literal name for gloo",
        "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ^lo",
        "NET/Socket : Using [0]eth0",
        knobs=_IFNAMES, certainty="certain",
    ),
    root(
        "net.full-mesh", "network_setup",
        ("Gloo connectFullMesh failed",),
        "Gloo connectFullMesh failed",
        "ranks cannot reach one another on the advertised addresses",
        "GLOO_SOCKET_IFNAME of an interface that the peers reach",
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: "
        "Connection refused, remote=[127.0.0.1]:31877",
        "gloo mesh complete",
        knobs=_IFNAMES,
    ),
    root(
        "net.rendezvous", "network_setup",
        (
            "DistStoreError", "The client socket has timed out", "waiting for clients",
            "The client socket has failed to connect", "RendezvousTimeoutError", "RendezvousConnectionError",
            "clients joined", "TCPStore is not available", "waitForInput: poll for socket", "waitForInput:",
            "wait timeout after",
        ),
        "DistStoreError: |The client socket has (?:timed out|failed to connect to any)"
        r"|Timed out after \d+ seconds waiting for clients|Rendezvous(?:Timeout|Connection)Error"
        r"|\d+/\d+ clients joined|waitForInput: .*timed out|wait timeout after \d+ms",
        "a peer never joined the rendezvous: wrong address, firewall, or it did not start",
        "check address and port from every node; look at the log of the node that is missing",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
        "2 clients joined the group",
        knobs=("--dist-init-addr", "MASTER_ADDR", "MASTER_PORT", "--nnodes", "--node-rank", *_IFNAMES),
    ),
    root(
        "net.gloo-timeout", "network_setup",
        ("Timed out waiting",),
        r"Timed out waiting \d+ms for (?:recv|send) operation to complete",
        "a rank waited in a gloo collective until the limit: the peer did not answer or was not there yet",
        "compare what every rank was doing; then interfaces and firewall between the nodes",
        "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
        "1800000ms for recv operation to complete",
        "Timed out waiting for the user",
        weight=3, certainty="possible", knobs=_IFNAMES,
    ),
    root(
        "net.nvshmem", "network_setup",
        ("nvshmem", "NVSHMEM", "ibgda", "deep_ep", "DeepEP"),
        "(?:nvshmem|NVSHMEM|ibgda|IBGDA|[Dd]eep_?[Ee][Pp]).{0,120}(?:fail|[Ee]rror|invalid|timeout"
        "|no .* devices)",
        "NVSHMEM or DeepEP cannot use the links between the GPUs or nodes",
        "RDMA devices and their rights in the container; --moe-a2a-backend none to confirm",
        "ibgda.cpp:3577: NULL value get_device_list failed: no IBGDA devices (nvshmem ibgda failed)",
        "DeepEP is enabled",
        weight=2, knobs=("--moe-a2a-backend", "NVSHMEM_IB_ENABLE_IBGDA", "--enable-deepep-moe"),
    ),
    root(
        "net.dns", "network_setup",
        (
            "Temporary failure in name resolution", "Name or service not known", "getaddrinfo failed",
            "No route to host", "Network is unreachable", "no such host", "NodeName or service",
            "hostname resolution",
        ),
        "Temporary failure in name resolution|Name or service not known|getaddrinfo failed"
        "|No route to host|Network is unreachable|no such host",
        "a host name does not resolve or a host is not reachable",
        "check name, route and proxy",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "name resolution took 3 ms",
        weight=2, knobs=("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    ),
    root(
        "net.nccl-connect", "network_setup",
        ("NCCL WARN",),
        "NCCL WARN .*(?:[Cc]onnect(?:ing)? to .*(?:failed|refused|timed out)|connect returned"
        r"|socket\w*.*(?:Connection (?:refused|timed out)|No route|failed)|Bootstrap.*(?:no socket|failed)"
        "|No route to host|Connection timed out|Connection refused)",
        "NCCL cannot connect to a peer",
        "NCCL_SOCKET_IFNAME of a reachable interface; firewall",
        "NCCL WARN socketStartConnect: Connect to 192.0.2.4<40123> failed : Connection refused",
        "NCCL WARN NET/IB : no hardware",
        knobs=_IFNAMES, weight=2,
    ),
    root(
        "net.ib", "network_setup",
        (
            "NET/IB", "ibv_modify_qp", "Got completion from peer", "vendor err", "ibv_poll_cq",
            "IBV_WC_RETRY_EXC_ERR", "transport retry counter", "GID index", "ib_device", "mlx5_", "RoCE",
            "local protection error", "IB device", "ibv_open_device",
        ),
        "NCCL WARN (?:NET/IB|Call to ibv_(?!create_cq failed with error Cannot)).*(?:error|fail|status)"
        r"|IBV_WC_\w+_ERR|transport retry counter exceeded|(?:Error|ERROR|RuntimeError|ValueError"
        r"|Exception|fail\w*).*(?:GID index|ib_device|IB device|mlx5_\d|ibv_open_device)"
        "|ibv_modify_qp failed|Failed to modify QP",
        "RDMA between the nodes fails: GID, cabling, or rights",
        "check ibstat, GID index and NCCL_IB_HCA; NCCL_IB_DISABLE=1 to confirm",
        "NCCL WARN NET/IB : Got completion from peer 192.0.2.4<4791> with status=12 opcode=0 len=0 "
        "vendor err 129",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE",
        knobs=(*_IFNAMES, "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "--disaggregation-ib-device"),
    ),
    root(
        "net.store-unreachable", "network_setup",
        (
            "reate lease", "etcd", "NATS", "nats", "Failed to connect to GCS", "gcs_server", "GCS server",
            "Unable to connect to GCS", "Redis", "unable to connect to discovery",
            "Failed to get the system config from raylet", "ray start", "Ray cluster",
        ),
        "(?:etcd|NATS|nats).{0,120}(?:[Uu]nable to|refused|unavailable|timed? ?out|not connected"
        "|[Cc]onnection (?:error|failed)|[Cc]ould not|deadline|lease (?:expired|not found))|(?:[Uu]nable"
        "|[Ff]ailed|[Cc]ould not) to? ?connect to (?:etcd|NATS|nats|GCS|the GCS|Redis|Ray|the Ray)"
        "|GCS (?:server )?(?:died|is unreachable|connection fail)|[Uu]nable to create lease"
        r"|nats: \w*Error|Could not find any running Ray instance|gcs_server.*(?:exited|not respond|fail)"
        "|transport error.*etcd|Can't find a `?node_ip_address",
        "the coordination service (etcd, NATS, Ray's head) cannot be reached",
        "start it, and give its right address",
        "Error: unable to connect to etcd: transport error: Connection refused",
        "connected to etcd",
        knobs=("ETCD_ENDPOINTS", "NATS_SERVER", "RAY_ADDRESS"), weight=2,
    ),
    root(
        "nccl.algo", "env_config",
        ("NCCL_ALGO", "NCCL_PROTO", "NCCL_", "No algorithm/protocol"),
        "No algorithm/protocol.*available|(?:NCCL_ALGO|NCCL_PROTO).*(?:invalid|not supported|was set"
        "|Unrecognized|unable)|NCCL WARN .*(?:Invalid value|invalid|Unrecognized|unknown"
        "|could not parse).*NCCL_[A-Z_]+|NCCL_[A-Z_]+ .*(?:invalid|out of range)",
        "an NCCL variable asks for what does not exist for this collective",
        "remove or correct the variable",
        "NCCL WARN Error : no algorithm/protocol available for function Broadcast with datatype "
        "ncclInt8. NCCL_ALGO was set to Tree.",
        "NCCL_ALGO set by environment to Ring.",
        knobs=("NCCL_ALGO", "NCCL_PROTO"), weight=4, certainty="certain",
    ),
    root(
        "nccl.invalid-usage", "env_config",
        ("invalid usage", "ncclInvalidUsage"),
        "NCCL error: invalid usage|ncclInvalidUsage|NCCL error.*invalid usage",
        "NCCL was asked for something it cannot do: often an algorithm variable, or two ranks on one GPU",
        "check NCCL_* variables and the GPUs of the ranks; NCCL_DEBUG=WARN",
        "Exception: Capture cuda graph failed: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for "
        "details)",
        "usage: launch_server.py",
        knobs=("NCCL_ALGO", "NCCL_PROTO", "CUDA_VISIBLE_DEVICES"), weight=2,
    ),
    root(
        "nccl.duplicate-gpu", "argument_error",
        ("Duplicate GPU detected",),
        "Duplicate GPU detected",
        "two ranks use the same GPU",
        "as many visible GPUs per node as ranks; check CUDA_VISIBLE_DEVICES",
        "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
        "GPU detected: 4",
        knobs=("CUDA_VISIBLE_DEVICES", "--tp-size", "--base-gpu-id"), certainty="certain", weight=4,
    ),
    root(
        "nccl.version", "abi_mismatch",
        (
            "Mismatched NCCL", "NCCL version mismatch", "ncclInvalidArgument", "Message truncated",
            "undefined symbol: nccl",
        ),
        "Mismatched NCCL|NCCL version mismatch|NCCL WARN Message truncated|NCCL.*version.{0,30}mismatch",
        "nodes or libraries use different NCCL versions",
        "the same image on every node; one NCCL library in the environment",
        "NCCL WARN Message truncated : received 1024 bytes instead of 256",
        "NCCL version 2.27.3",
        weight=3, knobs=("VLLM_NCCL_SO_PATH", "LD_PRELOAD"),
    ),
    root(
        "p2p.access", "nccl_p2p",
        (
            "peer access is not supported", "peer mapping resources exhausted",
            "cudaErrorPeerAccessUnsupported", "cudaDeviceEnablePeerAccess", "cudaIpcOpenMemHandle",
            "cudaIpcGetMemHandle", "P2P is disabled", "p2p is disabled", "peer-to-peer",
            "Failed to open CUDA IPC", "can't open shared memory handle", "P2P access",
        ),
        "peer access is not supported|peer mapping resources exhausted|PeerAccessUnsupported"
        r"|cudaDeviceEnablePeerAccess\(?.*(?:fail|error|not)|cudaIpc(?:Open|Get)MemHandle.*(?:fail|error"
        r"|invalid)|(?:Error|WARN|fail\w*).*cudaIpc\w+|[Ff]ailed to open CUDA IPC|(?:P2P|p2p"
        "|peer-to-peer).{0,40}(?:not supported between|not available between|access (?:failed|denied))",
        "GPUs cannot reach one another's memory: no peer access on this board, or it is blocked",
        "run without custom all-reduce; NCCL_P2P_DISABLE=1; check IOMMU and ACS",
        "[TensorRT-LLM][ERROR] CUDA runtime error in cudaDeviceEnablePeerAccess(dst, 0): peer access "
        "is not supported between these two devices",
        "P2P is enabled",
        weight=4,
        knobs=("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "--disable-custom-all-reduce", "--enable-p2p-check"),
    ),
    root(
        "p2p.nvls", "nccl_p2p",
        (
            "multicast", "NVLS", "cuMulticast", "MNNVL", "fabric handle", "CU_MEM_HANDLE_TYPE_FABRIC", "imex",
            "IMEX",
        ),
        r"(?:Error|WARN|ERROR|error|fail\w*|Failed).{0,100}(?:[Mm]ulticast|NVLS|MNNVL|[Ff]abric handle"
        r"|HANDLE_TYPE_FABRIC|imex|IMEX)|(?:[Mm]ulticast|NVLS|MNNVL|cuMulticast\w*|IMEX).{0,60}(?:failed"
        "|not permitted|invalid|error)",
        "NVLink multicast cannot be set up on this host",
        "NCCL_NVLS_ENABLE=0, or start the fabric's manager",
        "NCCL WARN Cuda failure 801 'operation not supported' while creating NVLS multicast group: failed",
        "NVLS multicast support is available",
        weight=2, knobs=("NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"),
    ),
    root(
        "nccl.cuda-failure", "nccl_p2p",
        ("Cuda failure",),
        r"NCCL WARN .*Cuda failure (?:\d+ )?'(?!out of memory)[^']*(?:peer|invalid argument"
        "|operation not supported|mapping|invalid resource handle|access)",
        "a CUDA call of NCCL between GPUs failed",
        "NCCL_P2P_DISABLE=1 or NCCL_CUMEM_ENABLE=0 to confirm; check IOMMU and ACS",
        "transport/p2p.cc:241 NCCL WARN Cuda failure 217 'peer access is not supported between these "
        "two devices'",
        "NCCL INFO Cuda ok",
        weight=3, knobs=("NCCL_P2P_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_ALGO"),
    ),
    symptom(
        "nccl.warn", "network_setup",
        ("NCCL WARN",),
        "NCCL WARN (?!.*(?:NET/Plugin|Failed to find|not found|dlerror|perf|NUMA|affinity|reverting"
        "|Could not enable|deprecated|Plugin))",
        "NCCL complained first",
        "read this line and NCCL_DEBUG=INFO around it",
        "NCCL WARN Error while doing something",
        "NCCL WARN NET/Plugin: could not be loaded",
        weight=2, certainty="possible",
    ),
    symptom(
        "nccl.unhandled", "network_setup",
        (
            "unhandled system error", "unhandled cuda error", "ncclSystemError", "ncclUnhandledCudaError",
            "ncclInternalError", "ncclRemoteError", "internal error - please report",
        ),
        "NCCL error.*(?:unhandled (?:system|cuda) error|internal error|remote)|nccl(?:System"
        "|UnhandledCuda|Internal|Remote)Error|unhandled (?:system|cuda) error",
        "NCCL failed and says only that",
        "NCCL_DEBUG=WARN and the first NCCL WARN line",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "NCCL INFO Init COMPLETE",
        weight=2, certainty="possible",
    ),
    aside(
        Role.HINT, "nccl.wrapper",
        ("ncclSystemError", "Last error:"),
        "^(?:ncclSystemError|Last error:)",
        "NCCL's explanation of the line above",
        "Last error:",
        "NCCL WARN Last",
    ),
)
