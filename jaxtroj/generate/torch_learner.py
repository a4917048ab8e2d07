"""The same steps computed by torch, for machines where XLA's are slow.

The network starts from a Flax module's weights and ends as one, so that the files, the records and
the tests of a round do not depend on what trained it. Steps run on a GPU where torch finds one.
Where the device multiplies bfloat16 matrices (AMX, AVX512-BF16, tensor cores), they run under
torch's autocast, with float32 weights, statistics and moments; predictions are float32 always.
"""

import jax
import numpy as np
from flax import nnx

from jaxtroj.generate import networks, torch_file
from jaxtroj.generate.flax_learner import to_model_input
from jaxtroj.generate.torch_device import step_precision, torch_device


class TorchLearner:
    """A torchvision network and Adam's state; see `training.Learner`."""

    def __init__(self, module: nnx.Module, architecture: str, num_classes: int, seed: int):
        """Take over the weights of `module`, a fresh network of `networks.build`.

        Args:
            module: where to start; not changed until `module()` is called.
            architecture: out of `networks.KNOWN`.
            num_classes: width of the head.
            seed: of dropout; torch's global generator is set to it.
        """
        import torch

        torch.manual_seed(seed)
        self.torch, self.flax_module, self.architecture = torch, module, architecture
        network = networks.torchvision_module(architecture, num_classes)
        tensors = torch_file.state_dict(module, architecture, num_classes, steps=0)
        arrays = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
        network.load_state_dict(arrays, strict=True, assign=True)
        network.requires_grad_(True)
        self.device = torch_device()
        self.network = network.to(self.device, memory_format=torch.channels_last)
        self.adam = torch.optim.Adam(network.parameters(), betas=(0.9, 0.999), eps=1e-8, fused=True)
        self.precision = getattr(torch, step_precision())

    def step(self, images: jax.Array, targets: np.ndarray, learning_rate: float):
        torch = self.torch
        self.network.train()
        for group in self.adam.param_groups:
            group["lr"] = learning_rate
        labels = self._labels(targets)
        with torch.autocast(self.device, self.precision, enabled=self.precision != torch.float32):
            logits = self.network(self._inputs(images)).float()
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item(), (logits.argmax(-1) == labels).cpu().numpy()

    def predict(self, images: jax.Array, targets: np.ndarray):
        torch = self.torch
        self.network.eval()
        labels = self._labels(targets)
        with torch.inference_mode():
            logits = self.network(self._inputs(images))
            losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return logits.argmax(-1).cpu().numpy(), losses.cpu().numpy()

    def module(self) -> nnx.Module:
        tensors = {name: value.cpu().numpy() for name, value in self.network.state_dict().items()}
        return networks.filled(self.flax_module, self.architecture, tensors)

    def _inputs(self, images: jax.Array):
        # A copy: torch wants memory it may write to. [n, c, h, w] over [n, h, w, c] memory is
        # what torch calls channels_last.
        pixels = self.torch.from_numpy(np.array(to_model_input(images))).to(self.device)
        return pixels.permute(0, 3, 1, 2)

    def _labels(self, targets: np.ndarray):
        return self.torch.from_numpy(np.asarray(targets, np.int64)).to(self.device)
