"""The Inception network of the original FID (TensorFlow, 2015), as torch-fidelity defines it (extra `inception`).

Its weights are the user's to download; the file is read as plain tensors only.
"""

from __future__ import annotations

import importlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfcal.core.devices import usual_device
from selfcal.core.errors import SelfcalError
from selfcal.core.files import file_sha256, write_in_place

PAGE = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"


def load(file: Path) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], str]:
    """(B, C, H, W) in [−1, 1] -> pool3 features (B, 2048) and probabilities (B, 1008); the weights' SHA-256."""
    if not file.is_file():
        raise SelfcalError(f"the Inception weights {file} do not exist; download them from {PAGE}")
    try:
        library = importlib.import_module("torch_fidelity.feature_extractor_inceptionv3")
    except ImportError:
        raise SelfcalError("Inception features need torch-fidelity: pip install 'selfcal[inception]'") from None
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        with tempfile.TemporaryDirectory(prefix="selfcal-") as folder:
            # torch-fidelity would run code in the file it is given: it gets one that we wrote
            clean = Path(folder) / "inception.pth"
            content = io.BytesIO()
            torch.save(weights, content)
            write_in_place(clean, content.getvalue())
            network: Any = library.FeatureExtractorInceptionV3("inception", ["2048", "logits_unbiased"], str(clean))
    except Exception as error:  # a damaged or hostile file can fail anywhere in the reader
        raise SelfcalError(f"{file} holds no Inception weights of torch-fidelity ({type(error).__name__})") from None

    network.to(usual_device())

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
        features, logits = network(((colour.clamp(-1, 1) + 1) * 127.5).round().byte())
        return features, logits

    return lambda x: both(x)[0], lambda x: both(x)[1].softmax(-1), file_sha256(file)
