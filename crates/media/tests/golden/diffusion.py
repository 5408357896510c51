"""Steps of diffusion in numpy, after the definitions of diffusers' schedulers: `diffusion.json` beside this file.

    python crates/media/tests/golden/diffusion.py

Each case starts with the same latents. The denoiser is a formula of the latents, the time and their place.
"""

import json
from pathlib import Path

import numpy as np

START = np.linspace(-1.7, 1.9, 8)


def denoiser(latents, time):
    return np.sin(2.5 * latents + np.arange(8)) * 0.8 + time / 2000.0


def alphas(case):
    count, (start, end) = case["train_steps"], case["beta_range"]
    if case["betas"] == "linear":
        betas = np.linspace(start, end, count)
    elif case["betas"] == "scaled_linear":
        betas = np.linspace(start**0.5, end**0.5, count) ** 2
    else:
        bar = lambda t: np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
        betas = np.array([min(1 - bar((i + 1) / count) / bar(i / count), 0.999) for i in range(count)])
    return np.cumprod(1 - betas)


def spaced(case, kind):
    count, steps = case["train_steps"], case["steps"]
    if kind == "linspace":
        return np.linspace(0, count - 1, steps)
    if kind == "trailing":
        return np.round(np.arange(count, 0, -count / steps))[::-1] - 1
    return np.arange(0, steps) * (count // steps) + case["offset"]


def predicted(kind, output, sample, alpha):
    """The picture and the noise."""
    signal, spread = alpha**0.5, (1 - alpha) ** 0.5
    if kind == "epsilon":
        return (sample - spread * output) / signal, output
    if kind == "sample":
        return output, (sample - signal * output) / spread
    return signal * sample - spread * output, signal * output + spread * sample


def ddim(case):
    table = alphas(case)
    final = 1.0 if case["final_one"] else table[0]
    sample = START.copy()
    for time in np.round(spaced(case, case["spacing"])).astype(int)[::-1]:
        before = time - case["train_steps"] // case["steps"]
        alpha_before = table[before] if before >= 0 else final
        picture, noise = predicted(case["prediction"], denoiser(sample, time), sample, table[time])
        if case["clip"]:
            picture = picture.clip(-1, 1)
        sample = alpha_before**0.5 * picture + (1 - alpha_before) ** 0.5 * noise
    return sample


def pndm(case):
    table = alphas(case)
    final = 1.0 if case["final_one"] else table[0]
    times = np.round(spaced(case, case["spacing"])).astype(int)
    times = np.concatenate([times[:-1], times[-2:-1], times[-1:]])[::-1]
    ratio = case["train_steps"] // case["steps"]
    sample, kept, outputs = START.copy(), None, []
    for counter, time in enumerate(times):
        output = denoiser(sample, time)
        before = time - ratio
        if counter != 1:
            outputs = outputs[-3:] + [output]
        else:
            before, time = time, time + ratio
        if len(outputs) == 1 and counter == 0:
            kept = sample
        elif len(outputs) == 1:
            output, sample = (output + outputs[-1]) / 2, kept
        elif len(outputs) == 2:
            output = (3 * outputs[-1] - outputs[-2]) / 2
        elif len(outputs) == 3:
            output = (23 * outputs[-1] - 16 * outputs[-2] + 5 * outputs[-3]) / 12
        else:
            output = (55 * outputs[-1] - 59 * outputs[-2] + 37 * outputs[-3] - 9 * outputs[-4]) / 24
        now, then = table[time], table[before] if before >= 0 else final
        if case["prediction"] == "v_prediction":
            output = now**0.5 * output + (1 - now) ** 0.5 * sample
        divisor = now * (1 - then) ** 0.5 + (now * (1 - now) * then) ** 0.5
        sample = (then / now) ** 0.5 * sample - (then - now) * output / divisor
    return sample


def euler(case):
    table = alphas(case)
    times = spaced(case, case["spacing"])[::-1]
    noise = ((1 - table) / table) ** 0.5
    sigmas = np.append(np.interp(times, np.arange(len(noise)), noise), 0)
    first = sigmas.max() if case["spacing"] != "leading" else (sigmas.max() ** 2 + 1) ** 0.5
    sample = START * first
    for place, time in enumerate(times):
        sigma = sigmas[place]
        output = denoiser(sample / (sigma**2 + 1) ** 0.5, time)
        if case["prediction"] == "epsilon":
            picture = sample - sigma * output
        elif case["prediction"] == "sample":
            picture = output
        else:
            picture = output * (-sigma / (sigma**2 + 1) ** 0.5) + sample / (sigma**2 + 1)
        sample = sample + (sample - picture) / sigma * (sigmas[place + 1] - sigma)
    return sample


def main():
    usual = {
        "prediction": "epsilon",
        "betas": "scaled_linear",
        "beta_range": [0.00085, 0.012],
        "train_steps": 1000,
        "offset": 1,
        "final_one": False,
        "clip": False,
    }
    rules = {"pndm": pndm, "ddim": ddim, "euler": euler}
    changes = [
        {"sampler": "pndm", "spacing": "leading", "steps": 2},
        {"sampler": "pndm", "spacing": "leading", "steps": 9},
        {"sampler": "pndm", "spacing": "leading", "steps": 25, "prediction": "v_prediction", "final_one": True},
        {"sampler": "pndm", "spacing": "linspace", "steps": 6, "betas": "linear", "beta_range": [0.0001, 0.02]},
        {"sampler": "ddim", "spacing": "leading", "steps": 1, "final_one": True, "offset": 0},
        {"sampler": "ddim", "spacing": "leading", "steps": 12, "clip": True, "final_one": True},
        {"sampler": "ddim", "spacing": "trailing", "steps": 7, "prediction": "v_prediction"},
        {"sampler": "ddim", "spacing": "linspace", "steps": 5, "prediction": "sample", "betas": "squaredcos_cap_v2"},
        {"sampler": "euler", "spacing": "linspace", "steps": 8},
        {"sampler": "euler", "spacing": "leading", "steps": 5, "prediction": "v_prediction"},
        {"sampler": "euler", "spacing": "trailing", "steps": 4, "prediction": "sample"},
    ]
    cases = [usual | change for change in changes]
    for case in cases:
        case["latents"] = [float(value) for value in rules[case["sampler"]](case)]
    text = json.dumps({"start": START.tolist(), "cases": cases}, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
