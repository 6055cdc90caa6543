"""Any PyTorch module that denoises becomes class-conditional: say what it predicts, and its schedule."""

import sys

import torch
from torch import nn

import selfcal
from selfcal.data.sources import load_data

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
betas = torch.linspace(1e-4, 0.02, 1000)


class Net(nn.Module):
    """Yours. This one predicts the noise in x_t from x_t and t = 0 … 999."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.enter = nn.Linear(64 + 16, width)
        self.hidden = nn.ModuleList(nn.Linear(width + 16, width) for _ in range(3))
        self.leave = nn.Linear(width, 64)

    def forward(self, x, t):
        angles = t[:, None] * 10 ** -torch.linspace(0, 3, 8)
        e = torch.cat([angles.sin(), angles.cos()], 1)
        h = self.enter(torch.cat([x.flatten(1), e], 1)).relu()
        for layer in self.hidden:
            h = h + layer(torch.cat([h, e], 1)).relu()
        return self.leave(h).view_as(x)


net, x, kept = Net(), load_data("digits").x, (1 - betas).cumprod(0)
optimiser = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(max(800, steps)):
    x0 = x[torch.randint(len(x), (128,))]
    z, t = torch.randn_like(x0), torch.randint(1000, (128,))
    a = kept[t][:, None, None, None]
    loss = (net(a.sqrt() * x0 + (1 - a).sqrt() * z, t) - z).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

run = selfcal.adopt(
    net, "digits", "4/class", "cg", "runs/net", predicts="epsilon", betas=betas, module=Net, steps=steps
)
run.sample(classes=3, count=16, scale=2.0).save("threes.png")
# In another process the run brings the weights, and you the code:
again = selfcal.load("runs/net", module=Net)
print(again, again.sample(count=2, steps=4))
