"""The model on disk or hub: configuration, tokenizer, weights."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "model.hub",
        "model_files",
        (
            "We couldn't connect to 'https://huggingface.co'",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "Repo id must be in the form",
            "HFValidationError",
            "GatedRepoError",
            "gated repo",
            "RepositoryNotFoundError",
            "RevisionNotFoundError",
            "404 Client Error",
            "401 Client Error",
            "403 Client Error",
            "EntryNotFoundError",
            "is not a local folder and is not a valid model identifier",
            "Cannot access gated repo",
            "is not a valid model identifier",
            "Repository Not Found",
            "Invalid repository ID or local directory",
            "MaxRetryError",
            "outgoing traffic has been disabled",
        ),
        "couldn't connect to 'https://huggingface|LocalEntryNotFoundError|OfflineModeIsEnabled"
        "|Repo id must be in the form|HFValidationError|GatedRepoError|gated repo|RepositoryNotFoundError"
        "|RevisionNotFoundError|40[134] Client Error|EntryNotFoundError|not a valid model identifier"
        "|Repository Not Found|Invalid repository ID or local directory"
        "|outgoing traffic has been disabled|MaxRetryError.*huggingface",
        "the model is neither on this host's disk nor to be had from the hub: wrong path or name, no "
        "access, or offline",
        "check path and mount on that host; for a gated model the token; else download it before",
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        "Connected to huggingface.co",
        knobs=("HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "--model-path", "HF_ENDPOINT"),
    ),
    root(
        "model.remote-code",
        "model_files",
        (
            "contains custom code which must be executed",
            "trust_remote_code=True",
            "trust_remote_code",
            "trust-remote-code",
        ),
        "contains custom code which must be executed|[Pp]lease (?:pass|set) .*trust.remote.code"
        "|requires you to execute",
        "the model brings code of its own",
        "--trust-remote-code after reading that code",
        "ValueError: The repository /models/Kimi-K2 contains custom code which must be executed to "
        "correctly load the model.",
        "trust_remote_code=True, tp_size=8",
        knobs=("--trust-remote-code",),
        certainty="certain",
    ),
    root(
        "model.tokenizer",
        "model_files",
        (
            "Couldn't instantiate the backend tokenizer",
            "Can't load tokenizer",
            "Tokenizer class",
            "tokenizer.json",
            "untagged enum",
            "ModelWrapper",
            "sentencepiece",
            "does not exist or is not currently imported",
            "Can't load the configuration",
            "tokenizer_config",
            "Can't load image processor",
            "preprocessor_config.json",
            "Can't load feature extractor",
            "chat template",
            "Cannot use chat template",
        ),
        "Couldn't instantiate the backend tokenizer|Can't load (?:tokenizer|the configuration"
        r"|image processor|feature extractor|processor)|Tokenizer class \S+ does not exist"
        r"|untagged enum ModelWrapper|(?:Error|Exception).*(?:tokenizer\.json|tokenizer_config"
        r"|preprocessor_config\.json)|Error parsing .*sentencepiece",
        "tokenizer or processor files are missing or do not fit the installed libraries",
        "complete the files, or --tokenizer-path",
        "ValueError: Couldn't instantiate the backend tokenizer from one of:",
        "tokenizer.json loaded",
        knobs=("--tokenizer-path", "--tokenizer"),
    ),
    root(
        "model.architecture",
        "model_files",
        (
            "does not recognize this architecture",
            "Model architectures",
            "Cannot find model module",
            "are not supported for now",
            "Unrecognized configuration class",
            "Unrecognized model in",
            "has no vLLM implementation",
            "has no SGLang implementation",
            "Cannot find the config file for",
            "Unsupported architectures",
            "does not have `model_type`",
            "No supported config format",
            "Invalid model architecture",
            "failed to be inspected",
        ),
        r"does not recognize this architecture|Model architectures \[.*\] (?:are not supported|failed)"
        "|Cannot find model module|Unrecognized (?:configuration class|model in)|has no (?:vLLM|SGLang"
        r"|sglang) implementation|[Uu]nsupported architectures?:? \[?'?\w+For|No supported config format"
        "|Cannot find the config file for|Invalid model architecture"
        r"|Model architecture \S+ (?:is )?not supported",
        "this version does not know the model's architecture, or its module could not be imported",
        "a newer engine and transformers, or a converted checkpoint; look for an ignored import error of that module",
        "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        "Resolved architecture: Qwen2ForCausalLM",
        weight=4,
    ),
    root(
        "model.config-key",
        "model_files",
        ("KeyError: '",),
        r"KeyError: '\w+'",
        "the model's type is not registered, or a key is missing in its configuration",
        "a version that knows it, or a converted checkpoint",
        "Traceback (most recent call last):\n  File "
        '"/x/transformers/models/auto/configuration_auto.py", line 756, in __getitem__\nKeyError: '
        "'llava_qwen'",
        "KeyError: 'llava_qwen'",
        frames=(
            r"configuration_auto|config\.py|hf_transformers_utils|model_config|transformers_utils"
            r"|configuration_utils|registry\.py"
        ),
    ),
    root(
        "model.weight-key",
        "model_files",
        (
            "KeyError: '",
            "weights were not initialized",
            "Missing key",
            "Unexpected key",
            "not found in params_dict",
            "no module or parameter named",
            "There is no module or parameter",
            "missing keys",
            "Following weights were not",
            "not in the model",
            "Error(s) in loading state_dict",
        ),
        r"^KeyError: '(?:model|layers?|lm_head|language_model|transformer|vision\w*|mtp|\w+)\..*'"
        r"|weights were not initialized from checkpoint|Missing key\(s\)|Unexpected key\(s\)"
        "|no module or parameter named|not found in params_dict|loading state_dict",
        "names of weights in the checkpoint are not those of the model",
        "the right checkpoint for this model class or version",
        "KeyError: 'model.layers.0.mlp.experts.w2_weight_scale'",
        "KeyError: 12",
    ),
    root(
        "model.no-weights",
        "model_files",
        (
            "Cannot find any model weights",
            "no safetensors",
            "No safetensors",
            "does not appear to have a file named",
            "Error no file named",
            "config.json",
            "No such file or directory",
            "model.safetensors.index.json",
            "is not a valid path",
            "does not exist",
        ),
        "Cannot find any model weights|[Nn]o safetensors (?:weights )?found|does not appear to have (?:a"
        "|any) files? named|Error no file named|(?:No such file or directory|does not exist"
        r"|not found).*\.(?:safetensors|gguf|bin|json|model|pt)\b|\.(?:safetensors|gguf|bin"
        r"|model)\b\S* (?:does not exist|not found)|(?:model|tokenizer|checkpoint) (?:path|directory"
        "|folder|file) .*(?:does not exist|not found)",
        "files of the model are missing where the server looks",
        "check path and download on that host",
        "RuntimeError: Cannot find any model weights with `/models/x`",
        "config.json loaded",
        knobs=("--model-path", "--model", "--speculative-draft-model-path", "--load-format"),
    ),
    root(
        "model.broken-file",
        "model_files",
        (
            "SafetensorError",
            "InvalidHeader",
            "MetadataIncompleteBuffer",
            "incomplete metadata",
            "HeaderTooLarge",
            "HeaderTooSmall",
            "header too",
            "InvalidHeaderDeserialization",
            "PytorchStreamReader",
            "unexpected EOF",
            "is corrupted",
            "invalid magic",
            "not within the file bounds",
            "Header too",
            "failed finding central directory",
            "Unable to load weights",
            "git-lfs",
            "file not fully covered",
            "checksum",
            "Consistency check failed",
            "file is corrupt",
            "Failed to read the header",
        ),
        "SafetensorError|InvalidHeader|MetadataIncompleteBuffer|incomplete metadata"
        "|[Hh]eader ?[Tt]oo ?(?:[Ll]arge|[Ss]mall)|PytorchStreamReader failed|unexpected EOF, expected"
        "|(?:is|are|file) corrupt|invalid magic (?:char|num)|not within the file bounds"
        "|failed finding central directory|git-lfs|Consistency check failed|checksum mismatch",
        "a file of the model is cut off or only a pointer",
        "download it again and compare sizes",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "header read",
        certainty="certain",
        weight=4,
    ),
    root(
        "model.shape",
        "model_files",
        (
            "size mismatch for",
            "shape mismatch",
            "Tried to load weights",
            "loaded_weight.shape",
            "Attempted to load weight",
            "param_data.shape == loaded_weight.shape",
            "exceeds dimension size",
            "start (0) + length",
            "The size of tensor a",
            "size mismatch",
            "shapes do not match",
        ),
        "size mismatch for |Tried to load weights|Attempted to load weight|shape mismatch|exceeds dimension size",
        "weights have another shape than the configuration says",
        "the configuration that belongs to these weights",
        "RuntimeError: size mismatch for lm_head.weight: copying a param with shape",
        "shapes match",
        weight=2,
    ),
    root(
        "model.shape-load",
        "model_files",
        ("AssertionError", "The size of tensor a", "RuntimeError: "),
        r"^AssertionError\b|The size of tensor a \(\d+\) must match|RuntimeError: (?:start|shape"
        "|The expanded size)",
        "loading weights failed on a shape",
        "the configuration and parallelism that belong to these weights",
        'Traceback (most recent call last):\n  File "/x/weight_utils.py", line 9, in weight_loader\nAssertionError',
        "AssertionError",
        frames=r"weight_loader|load_weights|weight_utils|load_model\b",
        weight=2,
        certainty="possible",
    ),
    root(
        "model.context",
        "argument_error",
        (
            "is greater than the derived context_length",
            "is greater than the derived max_model_len",
            "User-specified max_model_len",
            "User-specified context_length",
        ),
        "is greater than the derived (?:context_length|max_model_len)",
        "the length asked for is longer than the model's",
        "lower it, or allow it by the variable the message names",
        "ValueError: User-specified context_length (262144) is greater than the derived context_length (131072).",
        "context_length=4096",
        certainty="certain",
        knobs=("--context-length", "--max-model-len"),
        weight=4,
    ),
)
