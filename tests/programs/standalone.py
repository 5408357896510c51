"""Writes small Core ML models of their own, with what the networks themselves answer.

    python3.11 -m venv venv && . venv/bin/activate
    pip install -r tests/programs/requirements.txt coremltools==9.0
    python tests/programs/standalone.py                  # all of tests/fixtures/coreml
    python tests/programs/standalone.py mlp_fp32 counter # some models
    python tests/programs/standalone.py --large DIR      # one of 160 MB, for measurements

README.md beside this file says what is in them.
"""

import argparse
import contextlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

from export import fix_chance

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "coreml"


def main():
    """Writes the models that are named, or all of them."""
    fix_chance()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models; all when none is named")
    parser.add_argument("--into", metavar="DIR", type=Path, default=FIXTURES, help="another folder")
    parser.add_argument("--large", metavar="DIR", type=Path, help="only a large one, into this folder")
    chosen = parser.parse_args()

    import harness

    if chosen.large:
        harness.seed("large")
        write(large(), chosen.large / "large.mlpackage")
        return
    unknown = [name for name in chosen.names if name not in MODELS]
    if unknown:
        sys.exit(f"no such model: {', '.join(unknown)}; there are: {', '.join(MODELS)}")
    chosen.into.mkdir(parents=True, exist_ok=True)
    path = chosen.into / "cases.json"
    known = json.loads(path.read_text())["models"] if path.exists() else {}
    for name in chosen.names or MODELS:
        harness.seed(name)
        model, methods = MODELS[name]()
        extension = "mlpackage" if is_program(model) else "mlmodel"
        size = write(model, chosen.into / f"{name}.{extension}")
        known[name] = answers(name, methods, chosen.into)
        print(f"{name}: {size} bytes", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in MODELS if name in known]
    path.write_text('{"models": {\n' + ",\n".join(lines) + "\n}}\n")


def answers(name, methods, folder):
    """Writes what goes in and what the network answers; its entry of `cases.json`."""
    import torch
    import harness

    arrays, said = {}, {}
    for method, (network, cases) in methods.items():
        said[method] = []
        for number, inputs in enumerate(cases):
            with torch.no_grad():
                wanted = harness.flattened(network(*inputs))
            key = f"{method}{number}"
            said[method].append(
                {
                    "inputs": [
                        harness.describe(arrays, f"{key}i{i}", value)
                        for i, value in enumerate(inputs)
                    ],
                    "outputs": [
                        harness.describe(arrays, f"{key}o{i}", value)
                        for i, value in enumerate(wanted)
                    ],
                }
            )
    if arrays:
        harness.save_arrays(folder / f"{name}.npz", arrays)
    return said


def is_program(model):
    """Whether a model is an ML Program: these are folders."""
    return isinstance(model, Path) or model.get_spec().WhichOneof("Type") == "mlProgram"


def write(model, path):
    """Writes a model so that it has the same bytes each time; its size."""
    import coremltools as ct

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    if isinstance(model, Path):
        shutil.copytree(model, path)
        shutil.rmtree(model)
    else:
        model.save(str(path))
    if path.is_file():
        spec = ct.utils.load_spec(str(path))
        path.write_bytes(settled(spec))
        return path.stat().st_size
    manifest = json.loads((path / "Manifest.json").read_text())
    items = sorted(manifest["itemInfoEntries"].items(), key=lambda item: item[1]["path"])
    fixed = {key: f"00000000-0000-4000-8000-{i:012}" for i, (key, _) in enumerate(items)}
    manifest["itemInfoEntries"] = {fixed[key]: entry for key, entry in items}
    manifest["rootModelIdentifier"] = fixed[manifest["rootModelIdentifier"]]
    (path / "Manifest.json").write_text(json.dumps(manifest, indent=4))
    inner = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    spec = ct.utils.load_spec(str(inner))
    inner.write_bytes(settled(spec))
    inner.chmod(0o644)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def settled(spec):
    """A specification's bytes, without the day it was made on."""
    spec.description.metadata.userDefined.pop("com.github.apple.coremltools.conversion_date", None)
    return spec.SerializeToString(deterministic=True)


def convert(network, inputs, example, outputs=("y",), precision="fp32", target="iOS16", **more):
    """An ML Program of a network."""
    import coremltools as ct
    import torch

    traced = torch.jit.trace(network.eval(), example)
    kind = {"fp32": ct.precision.FLOAT32, "fp16": ct.precision.FLOAT16}[precision]
    outputs = [name if not isinstance(name, str) else ct.TensorType(name=name) for name in outputs]
    quiet = contextlib.redirect_stderr(io.StringIO())
    with quiet, contextlib.redirect_stdout(io.StringIO()):
        return ct.convert(
            traced,
            inputs=inputs,
            outputs=outputs,
            minimum_deployment_target=getattr(ct.target, target),
            compute_precision=kind,
            convert_to="mlprogram",
            skip_model_load=True,
            **more,
        )


def perceptron():
    """Two layers."""
    import torch

    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)]
    return torch.nn.Sequential(*layers).eval()


def noise(*shape):
    """Random numbers."""
    import torch

    return torch.randn(*shape)


def mlp(precision):
    """Fixed sizes; metadata of every kind."""
    import coremltools as ct

    network = perceptron()
    inputs = [ct.TensorType(name="x", shape=(2, 8))]
    model = convert(network, inputs, noise(2, 8), precision=precision)
    model.author, model.license = "A. Author", "Apache-2.0"
    model.short_description, model.version = "Two layers", "1.2"
    model.user_defined_metadata["purpose"] = "a test"
    model.input_description["x"] = "what goes in"
    return model, {"forward": (network, [(noise(2, 8),) for _ in range(2)])}


def ranged():
    """A batch of 1 to 8, and rows of any number; sizes go into the program's arithmetic."""
    import coremltools as ct
    import torch

    class Ranged(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)
            self.places = torch.nn.Parameter(torch.randn(16, 8))

        def forward(self, x):
            batch, length = x.shape[0], x.shape[1]
            y = self.layer(x) + self.places[:length]
            scores = torch.softmax(y @ y.transpose(1, 2), -1)
            return (scores @ y).reshape(batch, length * 8)

    network = Ranged().eval()
    shape = (ct.RangeDim(1, 8, default=1), ct.RangeDim(2, 16, default=4), 8)
    model = convert(network, [ct.TensorType(name="x", shape=shape)], noise(1, 4, 8))
    cases = [(noise(1, 4, 8),), (noise(3, 2, 8),), (noise(8, 16, 8),), (noise(2, 5, 8),), (noise(1, 7, 8),)]
    return model, {"forward": (network, cases)}


def padded():
    """An attention over 2 to 128 words, its padding masked by indices that are computed from sizes."""
    import coremltools as ct
    import numpy as np
    import torch

    class Padded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(128, 8)
            self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))
            self.norm = torch.nn.LayerNorm(8)
            self.register_buffer("order", torch.arange(128).unsqueeze(0))
            self.register_buffer("heads", torch.tensor([[1], [3]]))

        def forward(self, ids, mask):
            length = ids.shape[1]
            x = self.words(ids) + self.places(self.order[:, :length])
            parts = [layer(x).view(1, -1, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v)]
            scores = parts[0] @ parts[1].transpose(2, 3) * 0.5
            first = torch.zeros(1, 1, 1, 1, dtype=torch.long)
            columns = torch.arange(length).view(1, 1, 1, -1)
            hidden = (mask[first, columns] == 0).expand_as(scores)
            scores = scores.masked_fill(hidden, -1e9)
            # Integers of several dimensions, known before a run, times the length.
            steps = torch.arange(length).view(1, -1)
            far = self.heads * length - steps
            rows = steps.view(-1, 1) * length - steps * steps
            bias = (far.view(1, 2, 1, -1) + rows).to(scores.dtype) / 4096
            y = (torch.softmax(scores + bias, -1) @ parts[2]).transpose(1, 2)
            return self.norm(x + self.o(y.reshape(1, length, 8)))

    network = Padded().eval()
    shape = (1, ct.RangeDim(2, 128, default=16))
    inputs = [ct.TensorType(name=name, shape=shape, dtype=np.int32) for name in ("ids", "mask")]

    def words(length):
        mask = torch.ones(1, length, dtype=torch.int32)
        mask[0, (length + 1) // 2 + 1 :] = 0
        return torch.randint(0, 20, (1, length), dtype=torch.int32), mask

    example = tuple(value.long() for value in words(6))
    model = convert(network, inputs, example)
    cases = [words(length) for length in (16, 2, 3, 4, 5, 7, 8, 9, 12, 15, 17, 31, 63, 64, 65, 127, 128)]
    return model, {"forward": (network, cases)}


def enumerated():
    """Three shapes."""
    import coremltools as ct

    network = perceptron()
    shape = ct.EnumeratedShapes(shapes=[(2, 8), (1, 8), (4, 8)], default=(2, 8))
    model = convert(network, [ct.TensorType(name="x", shape=shape)], noise(2, 8))
    return model, {"forward": (network, [(noise(n, 8),) for n in (2, 1, 4)])}


def image():
    """A picture goes in."""
    import coremltools as ct
    import torch

    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    inputs = [ct.ImageType(name="picture", shape=(1, 3, 16, 12), scale=1 / 255, bias=[0, 0, 0])]
    return convert(network, inputs, noise(1, 3, 16, 12)), {}


def classifier():
    """A label and a dictionary come out."""
    import coremltools as ct
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    with_labels = {"classifier_config": ct.ClassifierConfig(["ant", "bee", "cow"])}
    inputs = [ct.TensorType(name="x", shape=(1, 4))]
    return convert(network, inputs, noise(1, 4), outputs=(), **with_labels), {}


def halves():
    """float16 goes in and comes out."""
    import coremltools as ct
    import numpy as np

    network = perceptron()
    inputs = [ct.TensorType(name="x", shape=(1, 8), dtype=np.float16)]
    outputs = [ct.TensorType(name="y", dtype=np.float16)]
    model = convert(network, inputs, noise(1, 8), outputs, precision="fp16")
    return model, {"forward": (network, [(noise(1, 8),), (noise(1, 8),)])}


def tokens():
    """Whole numbers go in."""
    import coremltools as ct
    import numpy as np
    import torch

    network = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Linear(8, 3)).eval()
    inputs = [ct.TensorType(name="ids", shape=(1, 5), dtype=np.int32)]
    model = convert(network, inputs, torch.zeros(1, 5, dtype=torch.long))
    cases = [(torch.randint(0, 11, (1, 5), dtype=torch.int32),) for _ in range(2)]
    return model, {"forward": (network, cases)}


def int4():
    """Weights of four bits in groups."""
    import coremltools as ct
    import coremltools.optimize.coreml as opt
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    inputs = [ct.TensorType(name="x", shape=(1, 64))]
    model = convert(network, inputs, noise(1, 64), target="iOS18")
    config = opt.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32, weight_threshold=0
    )
    with contextlib.redirect_stderr(io.StringIO()):
        model = opt.linear_quantize_weights(model, opt.OptimizationConfig(global_config=config))
    rounded = torch.nn.Sequential(*[blocks(layer) for layer in network])
    return model, {"forward": (rounded, [(noise(1, 64),), (noise(1, 64),)])}


def blocks(layer):
    """A linear layer with weights of four bits, a scale for each 32 of a row."""
    import copy
    import torch

    if not isinstance(layer, torch.nn.Linear):
        return layer
    layer = copy.deepcopy(layer)
    with torch.no_grad():
        parts = layer.weight.view(layer.out_features, -1, 32)
        scale = parts.abs().amax(-1, keepdim=True) / 7
        codes = torch.clamp(torch.round(parts / scale), -8, 7)
        layer.weight.copy_((codes * scale).view_as(layer.weight))
    return layer


def counter():
    """A sum that is kept from call to call."""
    import coremltools as ct
    import torch

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(1, 4))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    network = Counter().eval()
    states = [ct.StateType(wrapped_type=ct.TensorType(shape=(1, 4)), name="total")]
    inputs = [ct.TensorType(name="x", shape=(1, 4))]
    model = convert(network, inputs, noise(1, 4), target="iOS18", precision="fp16", states=states)
    network.total.zero_()
    return model, {"forward": (network, [(noise(1, 4),) for _ in range(4)])}


def methods():
    """Two functions that share weights."""
    import coremltools as ct
    import torch

    shared = torch.nn.Linear(8, 6).eval()
    networks = {"small": shared, "wide": torch.nn.Sequential(shared, torch.nn.Tanh()).eval()}
    sizes = {"small": 1, "wide": 4}
    folder = Path(tempfile.mkdtemp())
    descriptor = ct.utils.MultiFunctionDescriptor()
    for name, network in networks.items():
        inputs = [ct.TensorType(name="x", shape=(sizes[name], 8))]
        model = convert(network, inputs, noise(sizes[name], 8), target="iOS18")
        model.save(str(folder / f"{name}.mlpackage"))
        descriptor.add_function(str(folder / f"{name}.mlpackage"), "main", name)
    descriptor.default_function_name = "wide"
    path = folder / "both.mlpackage"
    with contextlib.redirect_stderr(io.StringIO()):
        ct.utils.save_multifunction(descriptor, str(path))
    said = {name: (networks[name], [(noise(sizes[name], 8),)]) for name in networks}
    return path, said


def network():
    """A neural network of layers, as models were before ML Programs."""
    import coremltools as ct
    from coremltools.models import datatypes
    from coremltools.models.neural_network import NeuralNetworkBuilder

    builder = NeuralNetworkBuilder(
        [("x", datatypes.Array(8))], [("y", datatypes.Array(4))], disable_rank5_shape_mapping=True
    )
    weights, bias = noise(4, 8).numpy(), noise(4).numpy()
    builder.add_inner_product("layer", weights, bias, 8, 4, True, "x", "z")
    builder.add_activation("relu", "RELU", "z", "y")
    builder.set_input(["x"], [(8,)])
    builder.spec.description.input[0].type.isOptional = True
    builder.spec.description.metadata.author = "A. Author"
    return ct.models.MLModel(builder.spec, skip_model_load=True), {}


def custom():
    """A layer that an application brings itself."""
    import coremltools as ct
    from coremltools.models import datatypes
    from coremltools.models.neural_network import NeuralNetworkBuilder
    from coremltools.proto import NeuralNetwork_pb2

    builder = NeuralNetworkBuilder(
        [("x", datatypes.Array(8))], [("y", datatypes.Array(8))], disable_rank5_shape_mapping=True
    )
    params = NeuralNetwork_pb2.CustomLayerParams()
    params.className = "Swish"
    builder.add_custom("own", ["x"], ["y"], params)
    return ct.models.MLModel(builder.spec, skip_model_load=True), {}


def pipeline():
    """Two models one after another; a number, a text and a dictionary go in."""
    import coremltools as ct
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model()
    spec.specificationVersion = 1
    inputs = spec.description.input
    for name in ("count", "weight", "word", "table", "list"):
        inputs.add().name = name
    inputs[0].type.int64Type.SetInParent()
    inputs[1].type.doubleType.SetInParent()
    inputs[2].type.stringType.SetInParent()
    inputs[3].type.dictionaryType.stringKeyType.SetInParent()
    inputs[4].type.sequenceType.int64Type.SetInParent()
    output = spec.description.output.add()
    output.name = "y"
    output.type.multiArrayType.dataType = 65600
    output.type.multiArrayType.shape.append(4)
    for maker in (network, custom):
        spec.pipeline.models.add().CopyFrom(maker()[0].get_spec())
    spec.pipeline.names.extend(["first", "second"])
    return ct.models.MLModel(spec, skip_model_load=True), {}


def large():
    """Many layers: 160 MB of weights."""
    import coremltools as ct
    import torch

    layers = [torch.nn.Linear(1024, 1024) for _ in range(40)]
    network = torch.nn.Sequential(*layers).eval()
    return convert(network, [ct.TensorType(name="x", shape=(1, 1024))], noise(1, 1024))


MODELS = {
    "mlp_fp32": lambda: mlp("fp32"),
    "mlp_fp16": lambda: mlp("fp16"),
    "ranged": ranged,
    "padded": padded,
    "enumerated": enumerated,
    "image": image,
    "classifier": classifier,
    "halves": halves,
    "tokens": tokens,
    "int4": int4,
    "counter": counter,
    "methods": methods,
    "network": network,
    "custom": custom,
    "pipeline": pipeline,
}


if __name__ == "__main__":
    main()
