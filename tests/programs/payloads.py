"""Writes small programs for Core ML, MLX and Vulkan, with what the networks themselves answer.

    python3.11 -m venv venv && . venv/bin/activate
    pip install -r tests/programs/requirements.txt coremltools==9.0
    # once: the wheel lacks the serialisers of MLX's graphs; the error about a template is harmless
    python SITE-PACKAGES/executorch/backends/mlx/serialization/generate.py --flatc SITE-PACKAGES/executorch/data/bin/flatc
    python tests/programs/payloads.py                    # all of tests/fixtures/payloads
    python tests/programs/payloads.py mlp lstm           # some networks
    python tests/programs/payloads.py --backend coreml   # one backend
    python tests/programs/payloads.py mil_recurrent      # operations of Core ML's own (mil.py)
    python tests/programs/payloads.py --large DIR        # networks of real size, for XNNPACK too

README.md beside this file says what is in them.
"""

import argparse
import contextlib
import copy
import importlib
import io
import json
import sys
import traceback
from pathlib import Path

from export import fix_chance

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "payloads"
MIL = ("mil_elements", "mil_layers", "mil_tensors", "mil_weights")
MORE = ("mlx_networks", "mlx_language", "vulkan_networks", *MIL)
BACKENDS = ("vulkan", "coreml", "mlx", "xnnpack")


def main():
    """Writes the programs that are named, or all of them."""
    fix_chance()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="networks; all when none is named")
    parser.add_argument("--backend", choices=BACKENDS, help="for this backend only")
    parser.add_argument("--into", metavar="DIR", type=Path, default=FIXTURES, help="another folder")
    parser.add_argument("--large", metavar="DIR", type=Path, help="write the large set into DIR")
    chosen = parser.parse_args()

    import harness
    import mil
    import payload_networks

    for more in MORE:
        importlib.import_module(more)
    networks = {**payload_networks.NETWORKS, **mil.NETWORKS}
    if chosen.large:
        networks, chosen.into = large_networks(), chosen.large
    unknown = [name for name in chosen.names if name not in networks]
    if unknown:
        sys.exit(f"no such network: {', '.join(unknown)}; there are: {', '.join(networks)}")
    chosen.into.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in chosen.names or networks:
        harness.seed(name)
        network = networks[name]()
        entry = answers(name, network, chosen.into)
        for variant in network.variants:
            backend = variant.partition("_")[0]
            if chosen.backend not in (None, backend):
                continue
            try:
                data, operators = build(name, network, variant)
            except Exception:
                print("".join(traceback.format_exc(chain=False)[-1500:]), file=sys.stderr)
                failed.append(f"{name}_{variant}")
                continue
            (chosen.into / f"{name}_{variant}.pte").write_bytes(data)
            entry["variants"][variant] = operators
            print(f"{name}_{variant}: {len(data)} bytes", flush=True)
        save(name, entry, chosen.into, networks)
    if failed:
        sys.exit(f"not written: {', '.join(failed)}")


def large_networks():
    """The networks of `export.py --large` that compute in float32, for every backend."""
    import harness
    import networks  # noqa: F401 (registers them)
    import payload_networks

    def of(function):
        def made():
            program = function()
            return payload_networks.Network(
                program.methods,
                ("xnnpack_fp32", *payload_networks.PLAIN),
                bool(program.sequence),
                "iOS18" if program.sequence else "iOS17",
            )

        return made

    quantized = ("int8", "8da4w")
    names = (name for name in harness.LARGE if not name.endswith(quantized))
    return {name: of(harness.LARGE[name]) for name in names}


def answers(name, network, folder):
    """Writes what goes in and what the network answers; its entry of `cases.json`."""
    import torch
    import harness

    arrays, methods = {}, {}
    for method_name, method in network.methods.items():
        module = copy.deepcopy(quantized(method))
        cases = []
        for number, inputs in enumerate(method.cases):
            key = f"{number}" if len(network.methods) == 1 else f"{method_name}{number}"
            with torch.no_grad():
                wanted = harness.flattened(module(*copy.deepcopy(inputs)))
            said = [
                harness.describe(arrays, f"{key}i{i}", value)
                for i, value in enumerate(harness.flattened(inputs))
            ]
            got = [harness.describe(arrays, f"{key}o{i}", value) for i, value in enumerate(wanted)]
            case = {"inputs": said, "outputs": got}
            if halves := getattr(network, "halves", None):
                rounded = enumerate(harness.flattened(halves(*inputs)))
                case["halves"] = [harness.describe(arrays, f"{key}h{i}", value) for i, value in rounded]
            cases.append(case)
        methods[method_name] = {"labels": harness.output_labels(method), "cases": cases}
    harness.save_arrays(folder / f"{name}.npz", arrays)
    entry = {"name": name, "variants": {}, "methods": methods}
    if network.sequence:
        entry["sequence"] = True
    if network.refused:
        entry["refused"] = list(network.refused)
    return entry


def quantized(method):
    """The network, with quantized weights where it asks for them."""
    if method.quantize is None:
        return method.network.eval()
    return method.quantize(copy.deepcopy(method.network).eval(), method)


def build(name, network, variant):
    """The program for one backend and precision, and what it calls outside delegates."""
    import harness
    import mil

    if isinstance(network, mil.Mil):
        return mil.build(network, variant)
    built = by_hand(name, network, variant) if network.build else exported(network, variant)
    plans = built.executorch_program.execution_plan
    operators = sorted({name for plan in plans for name in harness.operator_names(plan)})
    assert any(plan.delegates for plan in plans), "nothing was delegated"
    return bytes(built.buffer), operators


def by_hand(name, network, variant):
    """The program of a graph that is written call by call."""
    import harness
    import written

    with harness.without_containers(), contextlib.redirect_stdout(io.StringIO()):
        return written.program(name, network, variant.partition("_")[0])


def exported(network, variant):
    """The program that an exporter writes."""
    import harness
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from torch.export import export

    backend, _, precision = variant.partition("_")
    graphs = {}
    for name, method in network.methods.items():
        module, inputs = quantized(method), method.cases[0]
        if backend in ("mlx", "vulkan") and precision in ("bf16", "half"):
            kind = {"bf16": torch.bfloat16, "half": torch.float16}[precision]
            module, inputs = copy.deepcopy(module).to(kind), floats(inputs, kind)
        with torch.no_grad():
            graphs[name] = export(
                module, inputs, dynamic_shapes=method.dynamic, strict=method.strict
            )
    program = graphs if len(graphs) > 1 else graphs["forward"]
    quiet = contextlib.redirect_stdout(io.StringIO())
    with torch.no_grad(), quiet, harness.without_containers():
        lowered = to_edge_transform_and_lower(program, **lowering(backend, precision, network))
        return lowered.to_executorch(
            ExecutorchBackendConfig(**harness.SMALL, extract_delegate_segments=True)
        )


def floats(values, kind):
    """Inputs with their floats as another dtype."""
    import torch

    return tuple(value.to(kind) if torch.is_floating_point(value) else value for value in values)


def lowering(backend, precision, network):
    """What the exporter is told."""
    from executorch.exir import EdgeCompileConfig

    if backend == "vulkan":
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        options = {"force_fp16": True} if precision == "fp16" else {}
        partitioners = [VulkanPartitioner(options)]
        return {"partitioner": partitioners, "compile_config": EdgeCompileConfig(_check_ir_validity=False)}
    if backend == "mlx":
        from executorch.backends.mlx import MLXPartitioner
        from executorch.backends.mlx.passes import get_default_passes

        return {
            "partitioner": [MLXPartitioner()],
            "transform_passes": get_default_passes(),
            "compile_config": EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        }
    if backend == "xnnpack":
        import harness

        return {"partitioner": [harness.partitioner({})]}
    import coremltools as ct
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    half = precision.startswith("fp16")
    target = getattr(ct.target, network.target)
    specs = CoreMLBackend.generate_compile_specs(
        compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
        minimum_deployment_target=target,
    )
    stateful = network.target == "iOS18"
    return {
        "partitioner": [
            CoreMLPartitioner(compile_specs=specs, take_over_mutable_buffer=stateful)
        ],
    }


def save(name, entry, folder, networks):
    """Brings `cases.json` up to date, in the order of the networks."""
    import harness

    path = folder / "cases.json"
    known = {}
    if path.exists():
        known = {entry["name"]: entry for entry in json.loads(path.read_text())["programs"]}
    variants = {**known.get(name, {"variants": {}})["variants"], **entry["variants"]}
    entry["variants"] = dict(sorted(variants.items()))
    known[name] = entry
    entries = ",\n".join(harness.dumped(known[name]) for name in networks if name in known)
    path.write_text(f'{{"versions": {json.dumps(harness.versions())}, "programs": [\n{entries}\n]}}\n')


if __name__ == "__main__":
    main()
