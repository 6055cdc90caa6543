"""A diffusers pipeline becomes class-conditional with four labels per class, and a pipeline again."""

import sys

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import selfcal
from selfcal.data.sources import load_data
from selfcal.interop.export import export

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000

# Yours is trained already: selfcal.adopt("google/ddpm-cifar10-32", …), a folder, or the live pipeline, as here.
net = UNet2DModel(8, 1, 1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4,
                  down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2)  # fmt: skip
scheduler, x = DDPMScheduler(), load_data("digits").x
optimiser = torch.optim.Adam(net.parameters(), 2e-3)
for _ in range(max(200, steps)):
    x0 = x[torch.randint(len(x), (32,))]
    z, t = torch.randn_like(x0), torch.randint(1000, (32,))
    loss = (net(scheduler.add_noise(x0, z, t), t).sample - z).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

run = selfcal.adopt(DDPMPipeline(net, scheduler), "digits", "4/class", out="runs/ddpm", steps=steps, show_progress=True)
run.sample(classes="7", count=16, scale=2.0).save("sevens.png")
export(run, "pipeline")  # DiffusionPipeline.from_pretrained("pipeline", trust_remote_code=True)
