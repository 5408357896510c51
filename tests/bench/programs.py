#!/usr/bin/env python3
"""Times ExecuTorch programs on pkgtool's engines against their peers, and measures how closely they agree.

    python3 tests/programs/export.py --large DIR       (see tests/programs/README.md)
    tests/setup && python3 tests/bench/programs.py DIR [--rounds 5] [--seconds 1] [--threads 1,2]
                                                       [--only NAME,NAME] [--runners lowered,bare]
                                                       [--cpu-features SET] [--seeds 20] [--json FILE]

For each network of DIR: `executorch` (native) against a program that uses ExecuTorch and nothing else
(tests/bench/bare-executorch, same libraries), `tract` (lowered) against that program and against the
tract engine on an ONNX export of the same network, and that against ONNX Runtime. All take turns, a round each; a
ratio is the median over the rounds of the ratio of two medians. Agreement is that of the two engines on random inputs:
largest error relative to the output's largest magnitude, share of equal outputs, and of rows with the
largest element at the same place. Memory is the peak of the lowered program's process, without that of a process
whose program has no weights, as a part of the program's file. The last lines sum up: the median and the largest ratio
of lowered programs, and the time of each NAME_int8 as a part of NAME's. ExecuTorch always uses the best instructions of
the processor; `--cpu-features` is for pkgtool. Needs Linux, g++, and the feature `executorch`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PKGTOOL = ROOT / "target" / "release" / "pkgtool"
BARE = ROOT / "target" / "bench-run" / "bare-executorch"
PACKAGE = ROOT / "target" / "test-environment" / "executorch" / "executorch"
RUNTIME = ROOT / "target" / "test-environment" / "ort" / "onnxruntime" / "capi"
WITHOUT_WEIGHTS = ROOT / "tests" / "fixtures" / "programs" / "counter.pte"
LIBRARIES = ["executorch", "executorch_kernels_optimized", "executorch_kernels_quantized"]
LIBRARIES += ["executorch_backend_xnnpack", "executorch_threadpool"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", default="1,2", help="with commas")
    parser.add_argument("--seeds", type=int, default=20, help="random inputs for agreement")
    parser.add_argument("--only", help="names of networks, with commas")
    parser.add_argument(
        "--runners", default="native,bare,lowered,onnx,ort", help="with commas; bare and lowered must be"
    )
    parser.add_argument("--cpu-features", help="instructions of the lowered programs")
    parser.add_argument("--binary", type=Path, help="instead of a release build made now")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["PKGTOOL_EXECUTORCH_DIR"] = str(PACKAGE)
    os.environ.setdefault("ORT_DYLIB_PATH", str(next(RUNTIME.glob("libonnxruntime.so*"), "")))
    build(options)
    networks = json.loads((options.directory / "cases.json").read_text())["programs"]
    if options.cpu_features:
        os.environ["PKGTOOL_CPU_FEATURES"] = options.cpu_features
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, {processor(options)}"
    print(f"\n{machine}; {options.rounds} rounds of {options.seconds} s each\n")
    print(
        "| network | threads | agreement | native | / ExecuTorch | lowered | / ExecuTorch | / tract on ONNX "
        "| tract on ONNX | / ONNX Runtime | memory / file |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    results = []
    for network in networks:
        if options.only is None or network["name"] in options.only.split(","):
            path = options.directory / network["file"]
            agreed = agreement(path, options)
            for threads in map(int, options.threads.split(",")):
                results.append(compare(path, threads, agreed, options))
    summary = summed_up(results)
    if options.json:
        document = {"machine": machine, "results": results, "summary": summary}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def processor(options):
    """The name of the processor and the instructions in use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    return f"{name}, {options.cpu_features or 'best instructions'}"


def summed_up(results):
    """The median and the largest ratio for each number of threads, and int8 against float32."""
    summary = []
    for threads in sorted({result["threads"] for result in results}):
        chosen = {result["network"]: result for result in results if result["threads"] == threads}
        entry = {"threads": threads}
        ratios = {name: result["lowered_to_bare"] for name, result in chosen.items() if "lowered_to_bare" in result}
        if ratios:
            worst = max(ratios, key=ratios.get)
            entry |= {"median": statistics.median(ratios.values()), "largest": ratios[worst]}
            print(f"\n{threads} threads, {len(ratios)} programs, of ExecuTorch's time:", end=" ")
            print(f"median {entry['median']:.2f}, largest {ratios[worst]:.2f} ({worst})")
        quantized = {
            name: result["lowered_ms"] / chosen[name.removesuffix("_int8")]["lowered_ms"]
            for name, result in chosen.items()
            if name.endswith("_int8") and name.removesuffix("_int8") in chosen
        }
        if quantized:
            entry["int8_to_float32"] = quantized
            slower = sorted((ratio, name) for name, ratio in quantized.items() if ratio > 1)
            listed = ", ".join(f"{name} {ratio:.2f}" for ratio, name in slower) or "none"
            print(
                f"{threads} threads, int8, of float32's time: median {statistics.median(quantized.values()):.2f}, slower: {listed}"
            )
        summary.append(entry)
    return summary


def build(options):
    if not PACKAGE.is_dir():
        sys.exit("run tests/setup first: it gets ExecuTorch")
    if options.binary is None:
        command = ["cargo", "build", "--release", "--locked", "--features", "executorch"]
        subprocess.run(command, cwd=ROOT, check=True)
        options.binary = PKGTOOL
    BARE.parent.mkdir(parents=True, exist_ok=True)
    include = PACKAGE / "include"
    portable = include / "executorch/runtime/core/portable_type/c10"
    command = ["g++", "-std=c++20", "-O2", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS"]
    command += [f"-I{include}", f"-I{portable}", ROOT / "tests/bench/bare-executorch/main.cpp"]
    command += [f"-L{PACKAGE / 'lib'}", f"-Wl,-rpath,{PACKAGE / 'lib'}", "-Wl,--no-as-needed"]
    command += [*(f"-l{library}" for library in LIBRARIES), "-o", BARE]
    subprocess.run(command, check=True)


# ---- Agreement ----


def agreement(path, options):
    """Of the lowered program with the native one."""
    command = [options.binary, "compare", path, "--engine", "executorch,tract", "--json"]
    command += ["--seeds", str(options.seeds), "--max-rel", "10"]
    document = output(command)
    return document["outputs"][0]


# ---- Times ----


def compare(path, threads, agreed, options):
    onnx = path.with_suffix(".onnx")
    runners = {
        "native": lambda: pkgtool("executorch", path, threads, options),
        "bare": lambda: output([BARE, path, str(threads), str(options.seconds)])["times_ns"],
        "lowered": lambda: pkgtool("tract", path, threads, options),
    }
    # If sizes vary, an input without a given size is a different one for ONNX.
    if onnx.is_file() and not path.stem.endswith("_dynamic"):
        runners["onnx"] = lambda: pkgtool("tract", onnx, threads, options)
        runners["ort"] = lambda: pkgtool("ort", onnx, threads, options)
    runners = {name: run for name, run in runners.items() if name in options.runners.split(",")}
    medians = {runner: [] for runner in runners}
    for turn in range(options.rounds):
        # Each round begins with another: none always runs on a machine that just rested.
        order = list(runners)
        for runner in order[turn % len(order) :] + order[: turn % len(order)]:
            medians[runner].append(statistics.median(runners[runner]()))
    result = {"network": path.stem, "threads": threads, "agreement": agreed}
    for runner in runners:
        result[f"{runner}_ms"] = statistics.median(medians[runner]) / 1e6
    for ours, peer in (("native", "bare"), ("lowered", "bare"), ("lowered", "onnx"), ("onnx", "ort")):
        if ours in runners and peer in runners:
            ratios = [a / b for a, b in zip(medians[ours], medians[peer])]
            result[f"{ours}_to_{peer}"] = statistics.median(ratios)
            result[f"{ours}_to_{peer}_range"] = [min(ratios), max(ratios)]
    result["memory"] = memory(path, threads, options)
    result["memory_to_file"] = result["memory"] / path.stat().st_size
    top = agreed["top1"]
    print(
        f"| {path.stem} | {threads} | {agreed['max_rel']:.1e}, {agreed['equal']:.0%} equal"
        f"{'' if top is None else f', top-1 {top:.0%}'} "
        f"| {milliseconds(result, 'native')} | {shown(result, 'native_to_bare')} "
        f"| {result['lowered_ms']:.3f} ms | {shown(result, 'lowered_to_bare')} "
        f"| {shown(result, 'lowered_to_onnx')} "
        f"| {milliseconds(result, 'onnx')} | {shown(result, 'onnx_to_ort')} | {result['memory_to_file']:.2f} |",
        flush=True,
    )
    return result


def milliseconds(result, runner):
    return f"{result[f'{runner}_ms']:.3f} ms" if f"{runner}_ms" in result else ""


def shown(result, key):
    if key not in result:
        return ""
    low, high = result[f"{key}_range"]
    return f"{result[key]:.2f} ({low:.2f}–{high:.2f})"


def pkgtool(engine, path, threads, options):
    return [time * 1e6 for time in series(engine, path, threads, options)["samples_ms"]]


def memory(path, threads, options):
    """Bytes that a lowered program takes beyond what its process takes anyway."""
    with_it, without = (
        series("tract", program, threads, options)["peak_memory_bytes"] for program in (path, WITHOUT_WEIGHTS)
    )
    return with_it - without


def series(engine, path, threads, options):
    command = [options.binary, "bench", path, "--engine", engine, "--threads", str(threads)]
    command += ["--rounds", "1", "--seconds", str(options.seconds), "--input", "ones"]
    return output([*command, "--json", "--samples"])["series"][0]


def output(command):
    command = [str(word) for word in command]
    # ExecuTorch prints the processor's properties to standard error.
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{' '.join(command)}: {ran.stderr}")
    return json.loads(ran.stdout)


if __name__ == "__main__":
    main()
