# ruff: noqa - runs inside the engine, whose names and signatures it repeats
"""Stand-in for sgl_kernel on a CUDA machine: a few functions written in torch, every other name imports and raises.

Why it exists: on CUDA, SGLang 0.5.10 imports ``sgl_kernel`` unconditionally; the real wheel is about 400 MB and tied to
one torch version. A dense model with ``--attention-backend triton --sampling-backend pytorch`` calls only what is
defined below; SGLang compiles its other kernels (rope, qk-norm, KV store) itself with nvcc at first use. The layer
functions take part in CUDA graphs: no host synchronisation, no data-dependent shapes, results written in place where
the original does so. Greedy n-gram speculation (``--speculative-algorithm NGRAM``, temperature 0) works too.

Speeds measured with this module are those of this module. Never compare them with a server that has the real one.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import torch
import torch.nn.functional as F

__version__ = "0.4.1"
__path__ = []  # a package, so that ``import sgl_kernel.anything`` asks the finder below


def _write(out, result):
    if out is None:
        return result
    out.copy_(result)
    return out


def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    return _write(out, F.rms_norm(input, (input.shape[-1],), weight, eps))


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    residual.add_(input)
    input.copy_(F.rms_norm(residual, (residual.shape[-1],), weight, eps))


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    return rmsnorm(input, weight + 1, eps, out)


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    fused_add_rmsnorm(input, residual, weight + 1, eps)


def silu_and_mul(input, out=None, enable_pdl=None):
    gate, up = input.chunk(2, dim=-1)
    return _write(out, F.silu(gate) * up)


def gelu_tanh_and_mul(input, out=None, enable_pdl=None):
    gate, up = input.chunk(2, dim=-1)
    return _write(out, F.gelu(gate, approximate="tanh") * up)


def gelu_and_mul(input, out=None, enable_pdl=None):
    gate, up = input.chunk(2, dim=-1)
    return _write(out, F.gelu(gate) * up)


def weak_ref_tensor(tensor):
    """The original keeps no reference. Keeping one costs memory in piecewise CUDA graphs, and nothing else."""
    return tensor


def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    batch_size,
    draft_token_num,
):
    """Draft trees, given as "token i sees token j", to positions and first-child / next-sibling links."""
    order = torch.arange(draft_token_num, device=tree_mask.device)
    ancestors = tree_mask.view(batch_size, draft_token_num, draft_token_num).tril(-1)
    parent = (ancestors * (order + 1)).amax(-1) - 1  # -1: a root
    positions.copy_((verified_seq_len.view(-1, 1) + ancestors.sum(-1)).flatten())
    later = order > order.view(-1, 1)
    child = (parent.unsqueeze(1) == order.view(-1, 1)) & later
    sibling = (parent.unsqueeze(1) == parent.unsqueeze(2)) & later
    for links, hits in ((retrive_next_token, child), (retrive_next_sibling, sibling)):
        links.copy_(torch.where(hits.any(-1), hits.int().argmax(-1), -1))
    retrive_index.copy_(torch.arange(batch_size * draft_token_num, device=tree_mask.device).view(batch_size, -1))


def verify_tree_greedy(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """Walk each draft tree along the tokens that the model itself would choose. On the host: this is not captured."""
    target = target_predict.flatten().tolist()
    predicted, accepted = {}, []
    trees = (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    for tokens, index, child, sibling in zip(*(tensor.tolist() for tensor in trees), strict=True):
        path, node = [index[0]], 0
        while len(path) < accept_index.shape[1]:
            predicted[path[-1]] = wanted = target[path[-1]]
            node = child[node]
            while node != -1 and tokens[node] != wanted:
                node = sibling[node]
            if node == -1:
                break
            path.append(index[node])
        predicted[path[-1]] = target[path[-1]]
        accepted.append(path)
    width = accept_index.shape[1]
    device = predicts.device
    accept_index.copy_(torch.tensor([path + [-1] * (width - len(path)) for path in accepted]))
    accept_token_num.copy_(torch.tensor([len(path) - 1 for path in accepted]))
    where = torch.tensor(list(predicted), device=device)
    predicts[where] = torch.tensor(list(predicted.values()), device=device, dtype=predicts.dtype)


# SGLang registers a fake implementation for this operator when it is imported, so the operator must be declared.
torch.library.define(
    "sgl_kernel::moe_fused_gate",
    "(Tensor input, Tensor bias, int num_expert_group, int topk_group, int topk, int num_fused_shared_experts=0, "
    "float routed_scaling_factor=1.0, bool apply_routed_scaling_factor_on_output=False) -> (Tensor, Tensor)",
)


_WRITTEN = {name for name, value in globals().items() if isinstance(value, types.FunctionType)}


class _Absent:
    """A name that exists: its attributes exist too, and calling it raises."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self._name} is a stand-in: this rig has no sgl_kernel")

    def __getattr__(self, name):
        return _attribute_of(self._name, name)


def _attribute_of(owner, name):
    if name in _WRITTEN:  # ``from sgl_kernel.speculative import verify_tree_greedy``
        return globals()[name]
    if name.startswith("__"):  # protocol names (__path__, __wrapped__ …) must stay missing
        raise AttributeError(name)
    return _Absent(f"{owner}.{name}")


def __getattr__(name):
    return _attribute_of(__name__, name)


class _SubmoduleImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes ``sgl_kernel.<anything>`` out of nothing."""

    def find_spec(self, fullname, path, target=None):
        if fullname.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: _attribute_of(spec.name, name)
        return module

    def exec_module(self, module):
        """Nothing to run: every name is made when it is asked for."""


sys.meta_path.insert(0, _SubmoduleImporter())
