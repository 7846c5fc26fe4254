#!/usr/bin/env python3
"""Samples a second of `minnow train` on the CPU, beside so many busy processes: the default number of threads, one, all of them
spinning as libgomp spins by itself, and PyTorch's loop of the same model, if this Python has it.

    tests/threads.py [REPEATS]      (MINNOW=build/minnow)
"""
import json
import os
import statistics
import subprocess
import sys

MODELS = {  # rows, inputs, hidden, head, groups, batch, steps
    "64 rows, 64 -> 256,256": (8192, 64, [256, 256], 8, 8, 64, 400),
    "64 rows, 64 -> 512,512": (8192, 64, [512, 512], 8, 8, 64, 150),
    "256 rows, 1024 -> 1024": (2048, 1024, [1024], 0, 64, 256, 60),
    "128 rows, 512 -> 256": (2048, 512, [256], 0, 8, 128, 400),
    "256 rows, 1024 -> 1024 x 3": (2048, 1024, [1024, 1024, 1024], 0, 64, 256, 20),
    "1024 rows, 2048 -> 2048 x 2": (2048, 2048, [2048, 2048], 0, 128, 1024, 4),
    "digits": None,
}
CORES = len(os.sched_getaffinity(0))
WAYS = {
    "default": ({}, []),
    "one thread": ({}, ["--threads", "1"]),
    "all, spinning": ({"GOMP_SPINCOUNT": "300000"}, ["--threads", str(CORES)]),
    "PyTorch": None,
}
TORCH = """
import sys, time, torch
rows, inputs, hidden, head, groups, batch, steps = eval(sys.argv[1])
class Twice(torch.nn.Module):
    def forward(self, x): return x + x
layers, wide = [], inputs
for c in hidden:
    layers += [torch.nn.Linear(wide, c), torch.nn.GroupNorm(groups, c), torch.nn.LeakyReLU(), Twice()]
    wide = c
model = torch.nn.Sequential(*layers, *([torch.nn.Linear(wide, head)] if head else []))
x, y = torch.randn(rows, inputs), torch.randn(rows, head or wide)
update = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(steps + 3):
    if step == 3: start = time.perf_counter()
    pick = torch.randint(rows, (batch,))
    update.zero_grad()
    torch.nn.functional.mse_loss(model(x[pick]), y[pick]).backward()
    update.step()
print(steps * batch / (time.perf_counter() - start))
"""


def rate(model, way, beside):
    shape = MODELS[model]
    if WAYS[way] is None:
        if shape is None:
            return None
        steps = max(5, shape[6] // (10 if beside else 1))
        done = subprocess.run([sys.executable, "-c", TORCH, repr(shape[:6] + (steps,))], capture_output=True, text=True)
        return float(done.stdout) if done.returncode == 0 else None
    variables, options = WAYS[way]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))} | variables
    if shape is None:
        options = options + ["--data", "data/digits.h5", "--hidden", "128", "--epochs", "40"]
    else:
        rows, inputs, hidden, head, groups, batch, steps = shape
        steps = max(5, steps // (10 if beside and "spinning" in way else 1))
        options = options + ["--synthetic", str(rows), "--in", str(inputs), "--hidden", ",".join(map(str, hidden)), "--groups",
                             str(groups), "--head", str(head), "--batch", str(batch), "--steps", str(steps), "--test-rows", "0"]
    command = [os.environ.get("MINNOW", "build/minnow"), "train", "--device", "cpu", "--quiet", "--json", "--momentum", "0.9",
               "--lr", "0.001"] + options
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["time"]["samples_per_second"]


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"| model, on {CORES} cores | busy processes | " + " | ".join(WAYS) + " |\n|---|---" + "|---" * len(WAYS) + "|")
    for model in MODELS:
        for beside in 0, 1, 2:
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(beside)]
            try:
                rates = {way: [rate(model, way, beside) for _ in range(repeats)] for way in WAYS}
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            cells = ["–" if None in found else f"{statistics.median(found):,.0f}" for found in rates.values()]
            print(f"| {model} | {beside} | " + " | ".join(cells) + " |", flush=True)


main()
