#!/usr/bin/env python3
"""Makes tests/golden/adamw.h5: training runs of the block by torch.optim.AdamW in float64, as train/check/check.h
describes them. Needs PyTorch and h5py: python3 tests/golden/adamw.py"""

import os

import h5py
import numpy as np
import torch

N, I, C, G, EPS, SLOPE, STEPS = 16, 12, 32, 4, 1e-5, 0.01, 20

CASES = {
    "adamw": dict(lr=0.01, beta1=0.9, beta2=0.999, adam_eps=1e-8, weight_decay=0.0),
    "adamw_decay": dict(lr=0.01, beta1=0.9, beta2=0.999, adam_eps=1e-8, weight_decay=0.1),
    # So large an eps counts, and so does where the correction of v stands: within the root or after eps.
    "adamw_eps": dict(lr=0.05, beta1=0.8, beta2=0.95, adam_eps=0.05, weight_decay=0.01),
    "adamw_weights": dict(lr=0.05, beta1=0.8, beta2=0.95, adam_eps=0.05, weight_decay=0.01, weighted=True),
}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(I, C)
        self.gn = torch.nn.GroupNorm(G, C, EPS)

    def forward(self, x):
        x = torch.nn.functional.leaky_relu(self.gn(self.fc(x)), SLOPE)
        return x + x


def random(generator, *shape):
    return torch.from_numpy(generator.uniform(-1, 1, shape))


def make(group, seed, lr, beta1, beta2, adam_eps, weight_decay, weighted=False):
    generator = np.random.default_rng(seed)
    block = Block().double()
    with torch.no_grad():
        for name, p in block.named_parameters():
            p.copy_(random(generator, *p.shape) * (0.5 if name.startswith("fc") else 1))
    x, target = random(generator, N, I), random(generator, N, C)
    weights = 1 + random(generator, N, 1) if weighted else torch.ones(N, 1)
    for name, p in block.state_dict().items():
        group["initial/" + name] = p.numpy()
    optimizer = torch.optim.AdamW(block.parameters(), lr, (beta1, beta2), adam_eps, weight_decay)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (weights * torch.nn.functional.mse_loss(block(x), target, reduction="none")).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for name, p in block.state_dict().items():
        group["final/" + name] = p.numpy()
    group["x"], group["target"], group["losses"] = x.numpy(), target.numpy(), losses
    if weighted:
        group["weights"] = weights.numpy()
    group.attrs.update(N=N, I=I, C=C, G=G, steps=STEPS, eps=EPS, negative_slope=SLOPE, lr=lr, beta1=beta1,
                       beta2=beta2, adam_eps=adam_eps, weight_decay=weight_decay)
    group.attrs["optimizer"] = np.bytes_("adamw")


with h5py.File(os.path.join(os.path.dirname(os.path.abspath(__file__)), "adamw.h5"), "w") as file:
    for seed, (name, settings) in enumerate(CASES.items()):
        make(file.create_group(name), seed, **settings)
