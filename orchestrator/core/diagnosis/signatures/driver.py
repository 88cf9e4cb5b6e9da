"""Driver, GPU and its hardware."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "driver.nvml-mismatch", "driver_mismatch",
        ("Driver/library version mismatch", "NVMLError_LibRmVersionMismatch", "API mismatch"),
        "Driver/library version mismatch|LibRmVersionMismatch|NVRM: API mismatch",
        "the driver was upgraded under a running kernel module",
        "reload the kernel module or reboot the host",
        "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
        "driver version 580",
        certainty="certain",
    ),
    root(
        "driver.combination", "driver_mismatch",
        (
            "unsupported display driver", "Error 803", "Error 804", "forward compatibility was attempted",
            "cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice",
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        ),
        r"unsupported display driver|Error 80[34]\b|forward compatibility was attempted"
        "|SystemDriverMismatch|CompatNotSupported|SYSTEM_DRIVER_MISMATCH",
        "the libcuda that was loaded does not fit the driver: a compat library in the image shadows "
        "it, or is not allowed here",
        "put the host's driver library first (LD_LIBRARY_PATH), or use another image",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported "
        "display driver / cuda driver combination",
        "forward compatibility package is installed",
        knobs=("LD_LIBRARY_PATH",), certainty="certain",
    ),
    root(
        "driver.old", "driver_mismatch",
        (
            "CUDA driver version is insufficient", "cudaErrorInsufficientDriver",
            "driver on your system is too old", "unsupported toolchain", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "cudaErrorUnsupportedPtxVersion", "INSUFFICIENT_DRIVER", "unsatisfied condition: cuda>=",
            "update your GPU driver", "requires driver",
        ),
        "CUDA driver version is insufficient|cudaErrorInsufficientDriver|driver on your system is too old"
        "|compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion"
        "|INSUFFICIENT_DRIVER|unsatisfied condition: cuda>=",
        "the driver is older than the CUDA runtime of the image",
        "a newer driver, or an image for an older CUDA",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).",
        "driver version 580.65",
        certainty="certain",
    ),
    root(
        "driver.no-gpu", "driver_mismatch",
        (
            "No CUDA GPUs are available", "no NVIDIA driver on your system", "no CUDA-capable device",
            "0 active drivers", "Torch not compiled with CUDA enabled", "NVML Shared Library Not Found",
            "NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded", "Driver Not Loaded",
            "couldn't communicate with the NVIDIA driver", "Failed to infer device type",
            "could not select device driver", "nvidia-container-cli", "libnvidia-ml.so",
            "Can't initialize NVML", "CUDA_ERROR_NO_DEVICE", "No accelerator", "cudaErrorNoDevice",
        ),
        "No CUDA GPUs are available|no NVIDIA driver on your system|no CUDA-capable device"
        "|0 active drivers|Torch not compiled with CUDA enabled|NVML Shared Library Not Found"
        "|NVMLError_(?:LibraryNotFound|DriverNotLoaded)|Driver Not Loaded"
        "|couldn't communicate with the NVIDIA driver|Failed to infer device type"
        "|could not select device driver|nvidia-container-cli: .*error|CUDA_ERROR_NO_DEVICE"
        r"|cudaErrorNoDevice|No accelerator \(",
        "no GPU is visible to the process",
        "check the driver, the container's GPU option and CUDA_VISIBLE_DEVICES",
        "RuntimeError: No CUDA GPUs are available",
        "4 CUDA GPUs are available",
        weight=3, knobs=("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    ),
    root(
        "driver.not-initialised", "driver_mismatch",
        (
            "system not yet initialized", "Error 802", "cudaErrorSystemNotReady",
            "CUDA_ERROR_SYSTEM_NOT_READY", "fabricmanager", "Fabric Manager", "fabric manager",
        ),
        r"system not yet initialized|Error 802\b|SystemNotReady|SYSTEM_NOT_READY"
        "|[Ff]abric ?[Mm]anager.*(?:not running|fail|mismatch|error|not started)",
        "the NVSwitch fabric is not up: its manager does not run or has another version than the driver",
        "start nvidia-fabricmanager of the driver's version",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "Fabric Manager is active",
        certainty="certain",
    ),
    root(
        "driver.unknown-error", "driver_mismatch",
        (
            "CUDA unknown error", "CUDA error: unknown error", "Error 999", "initialization error",
            "driver shutting down", "CUDA_ERROR_UNKNOWN", "Error 101: invalid device ordinal",
            "cudaErrorInitializationError", "Error 3: initialization error",
        ),
        r"CUDA unknown error|CUDA error: unknown error|Error 999\b|CUDA_ERROR_UNKNOWN"
        "|CUDA error: initialization error|Error 3: initialization error",
        "the driver does not initialise: device nodes, modules or a state left by suspend",
        "check nvidia-smi, /dev/nvidia-uvm and dmesg; reload the modules",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
        "unknown error rate: 0",
        weight=2,
    ),
    root(
        "driver.nvml", "driver_mismatch",
        ("NVMLError",),
        r"NVMLError(?:_\w+)?: (?!.*GPU is lost)",
        "the driver's management library refuses a call",
        "the driver of the host and the library in the container",
        "pynvml.NVMLError_NotSupported: Not Supported",
        "NVMLError handling enabled",
        weight=2, certainty="possible",
    ),
    root(
        "hw.xid", "hardware_fault",
        ("NVRM: Xid",),
        r"NVRM: Xid \(\S+\): (?:48|62|63|64|74|79|92|94|95|110|119|120|122|123|136|140|143|154)\b",
        "the driver reports a fault of the GPU or its link",
        "drain the GPU: nvidia-smi -q, row remap, reset or replace",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        loud=True, sticky=True, weight=4, certainty="certain",
    ),
    root(
        "hw.xid-software", "illegal_memory_access",
        ("NVRM: Xid",),
        r"NVRM: Xid \(\S+\): (?:13|31|43|45|69)\b",
        "the driver reports a fault that a kernel of the server caused",
        "find the kernel; suspect the software first",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, MMU Fault",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        loud=True, weight=2,
    ),
    root(
        "hw.ecc", "hardware_fault",
        (
            "uncorrectable ECC", "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE",
            "double bit ECC", "Double Bit ECC", "NVLink error", "uncorrectable NVLink",
            "uncorrectable nvlink", "cudaErrorNvlinkUncorrectable",
        ),
        "uncorrectable ECC error(?!s: 0)|ECCUncorrectable|ECC_UNCORRECTABLE|[Dd]ouble [Bb]it ECC"
        "|[Uu]ncorrectable (?:NVLink|nvlink) error|NvlinkUncorrectable|NVLink error was detected",
        "GPU memory or a link has an uncorrectable error",
        "reset or replace the GPU, or leave it out",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "uncorrectable ECC errors: 0",
        certainty="certain", weight=4,
    ),
    root(
        "hw.lost", "hardware_fault",
        (
            "GPU is lost", "fallen off the bus", "Unable to determine the device handle",
            "NVMLError_GpuIsLost", "GPU requires reset", "hardware stack error", "GPU recovery action",
            "Unknown Error", "NVMLError_Unknown", "device is in an unusable state", "devices unavailable",
            "busy or unavailable", "nvidia-smi: No devices were found", "PCIe Bus Error", "AER:",
            "Machine check", "mce: [Hardware Error]",
        ),
        "GPU is lost|fallen off the bus|Unable to determine the device handle|GpuIsLost"
        "|GPU requires reset|CUDA error: hardware stack error|NVMLError_Unknown: Unknown Error"
        r"|Failed to initialize NVML: Unknown Error|mce: \[Hardware Error\]"
        "|PCIe Bus Error: severity=Uncorrect|No devices were found",
        "the GPU no longer answers",
        "drain the host; reset or power-cycle; check power and PCIe",
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.",
        "GPU found: H200",
        sticky=True, weight=4, certainty="certain",
    ),
    root(
        "hw.busy", "oom_other_process",
        ("busy or unavailable", "CUDA-capable device(s) is/are busy"),
        "is/are busy or unavailable",
        "another process holds the GPU exclusively",
        "end that process or leave the exclusive compute mode",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "the queue is busy",
    ),
)
