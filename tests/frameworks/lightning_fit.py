# SPDX-License-Identifier: MulanPSL-2.0
"""A LightningModule, trained by Lightning's Trainer."""
import sys
import warnings

import torch

try:
    import lightning
except ImportError:
    import pytorch_lightning as lightning

STEPS = 8
kept = []
warnings.simplefilter("ignore")


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
        )

    def training_step(self, batch, number):
        x, y = batch
        if "leak" in sys.argv:
            kept.append(torch.cat([x] * 64))  # the leak
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


data = torch.utils.data.TensorDataset(torch.rand(32 * STEPS, 128), torch.rand(32 * STEPS, 1))
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="auto",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=32))
print("steps", STEPS)
