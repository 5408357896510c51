#!/usr/bin/env python3
"""Writes crates/model/src/executorch/load/operators.txt: the operators that programs for ExecuTorch call.

`kernels.py` prints the table. Needs the ExecuTorch package, by `PKGTOOL_EXECUTORCH_DIR` as `tests/setup` sets it,
and `torchgen`, which comes with the package `torch`, for the operators of ATen. The file says how a line reads.
"""

import importlib.metadata
import os
import re
from pathlib import Path

import torchgen
import yaml
from torchgen.gen import parse_native_yaml
from torchgen.model import BaseTy, BaseType, FunctionSchema, ListType, OptionalType

PACKAGE = Path(os.environ["PKGTOOL_EXECUTORCH_DIR"])
NATIVE = Path(torchgen.__file__).parent / "packaged/ATen/native"
# Kernels that the runtime's libraries have, and those that backends bring along.
KERNELS = ["kernels/portable/functions.yaml", "kernels/portable/custom_ops.yaml", "kernels/portable/et_copy_ops.yaml", "kernels/quantized/quantized.yaml"]
BROUGHT = ["backends/cortex_m/ops/operators.yaml", *(f"backends/cadence/aot/functions{name}.yaml" for name in ("", "_hifi", "_vision", "_fusion_g3"))]
# Libraries that register kernels by hand, with the namespace that they register them in.
REGISTERED = {"llama": "extension/llm/custom_ops/libcustom_ops_aot_lib.so", "executorch_prim": "lib/libexecutorch.so"}
# Operators of earlier releases, which programs still call.
EARLIER = ["llama::sdpa.out"]
# Namespaces whose operators are all known. Everything else may be an application's own.
NAMESPACES = ("aten", "dim_order_ops", "et_copy", "executorch_prim", "llama", "quantized_decomposed")
# Arguments of the kernels that work on numbers, which no file of the package tells.
PRIMITIVE = {
    "aten::sym_size.int": "ti#",
    "aten::_local_scalar_dense": "t#",
    "aten::sym_numel": "t#",
    **{f"executorch_prim::{name}.Scalar": "nn#" for name in ("add", "sub", "mul", "floordiv", "truediv")},
    **{f"executorch_prim::{name}.Scalar": "ss#" for name in ("eq", "gt", "lt", "ge", "le")},
    **{f"executorch_prim::{name}.Scalar": "ii#" for name in ("sym_max", "sym_min", "mod")},
    **{f"executorch_prim::{name}.int": "ii#" for name in ("floordiv", "mod")},
    **{f"executorch_prim::{name}.Scalar": "f#" for name in ("ceil", "round", "trunc")},
    **{f"executorch_prim::{name}.Scalar": "s#" for name in ("sym_float", "sym_int")},
    "executorch_prim::neg.Scalar": "n#",
    "executorch_prim::sym_not.Scalar": "b#",
    "executorch_prim::sym_ite.Scalar": "bss#",
    "executorch_prim::et_copy_index.tensor": "tti",
    "executorch_prim::et_view.default": "tlt",
}
KINDS = {
    BaseTy.Tensor: "t",
    BaseTy.Scalar: "s",
    BaseTy.int: "i",
    BaseTy.SymInt: "i",
    BaseTy.ScalarType: "i",
    BaseTy.MemoryFormat: "i",
    BaseTy.Layout: "i",
    BaseTy.Device: "i",
    BaseTy.float: "f",
    BaseTy.bool: "b",
    BaseTy.str: "c",
}
LISTS = {"t": "v", "T": "w", "i": "l", "f": "d", "b": "k"}
HEAD = """\
# Written by tests/operators/kernels.py from ExecuTorch {executorch} and PyTorch {torch}.
# version VERSION of ExecuTorch
# namespace NAME, then its operators: NAME, then each OVERLOAD, `-` for the one without a name
# OVERLOAD:ARGUMENTS where ExecuTorch's own libraries have the kernel. Each is one letter, a capital if it may be none:
# t tensor, v list of tensors, w list of optional tensors, i int, l list of ints, f double, d list of doubles, b bool,
# k list of bools, c string, n int or double, s int, double or bool, . the result, # the result, which may be of any kind
"""


def kind(type_):
    if isinstance(type_, OptionalType):
        return kind(type_.elem).upper()
    if isinstance(type_, ListType):
        return LISTS[kind(type_.elem)]
    assert isinstance(type_, BaseType), type_
    return KINDS[type_.name]


def arguments(schema):
    """The kinds of a schema's arguments, and one more for what it returns."""
    return "".join(kind(argument.type) for argument in schema.arguments.flat_all) + "."


def of_aten():
    """Schemas by name, also of the variants that PyTorch's build generates."""
    parsed = parse_native_yaml(str(NATIVE / "native_functions.yaml"), str(NATIVE / "tags.yaml"))
    return {f"{function.namespace}::{function.func.name}": function.func for function in parsed.native_functions}


def entries(path):
    """Names with schemas, where the file has them."""
    for entry in yaml.safe_load((PACKAGE / path).read_text()) or []:
        text = entry.get("func") or entry["op"]
        space, _, rest = text.partition("::")
        space, rest = ("aten", text) if "(" in space or not rest else (space, rest)
        if "func" in entry:
            schema = FunctionSchema.parse(rest)
            yield f"{space}::{schema.name}", schema
        else:
            yield f"{space}::{rest}", None


def main():
    aten = of_aten()
    table = dict.fromkeys(aten, "")
    for path in KERNELS:
        for name, schema in entries(path):
            table[name] = arguments(schema or aten[name])
    for path in BROUGHT:
        for name, _ in entries(path):
            table.setdefault(name, "")
    for space, path in REGISTERED.items():
        found = re.findall(rb"(?<=\0)%s::\w+(?:\.\w+)?(?=\0)" % space.encode(), (PACKAGE / path).read_bytes())
        assert found, path
        table.update(dict.fromkeys((name.decode() for name in found), ""))
    table.update(dict.fromkeys(EARLIER, ""))
    of_numbers = "executorch_prim::"
    assert {name for name in table if name.startswith(of_numbers)} == {name for name in PRIMITIVE if name.startswith(of_numbers)}
    table.update(PRIMITIVE)
    version = re.search(r'__version__ = "([\d.]+)', (PACKAGE / "version.py").read_text()).group(1)
    torch = importlib.metadata.version("torch").split("+")[0]
    print(HEAD.format(executorch=version, torch=torch), end="")
    print("version", version)
    for space in NAMESPACES:
        print("namespace", space)
        operators = {}
        for name in sorted(name for name in table if name.startswith(f"{space}::")):
            base, _, overload = name.removeprefix(f"{space}::").partition(".")
            operators.setdefault(base, []).append((overload or "-") + (table[name] and ":" + table[name]))
        for base, overloads in operators.items():
            print(base, *overloads)


if __name__ == "__main__":
    main()
