#!/usr/bin/env python3
"""Writes crates/model/src/onnx/load/operators.txt: the schemas of ONNX's operators and of ONNX Runtime's own.

`schemas.py` prints the table that the installed packages `onnx` and `onnxruntime` give. The file says
how a line reads. Where both packages know an operator, what either of them allows is allowed.
"""

import onnx
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

# Domains of the standard; everything else is taken from ONNX Runtime.
STANDARD = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
CONTRIBUTED = ("com.microsoft",)
# Operators of ONNX Runtime that take any further attribute, which no package tells.
UNCHECKED = {"BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "EPContext", "QOrderedLayerNormalization", "Snpe"}
UNLIMITED = 2**31 - 1
SINGLE, OPTIONAL, VARIADIC = 0, 1, 2

HEAD = """\
# Written by tests/operators/schemas.py from onnx {onnx} and ONNX Runtime {runtime}.
# ir VERSION, and types: NAME …, by their numbers from 0
# set: the types of set 0, 1, … as a hexadecimal number with a bit for each type
# domain NAME LATEST_VERSION, then its operators, each with all versions from old to new:
# NAME SINCE MIN_INPUTS MIN_OUTPUTS|INPUTS|OUTPUTS|PARAMETERS|ATTRIBUTES
# An input or output is a type parameter or =SET; ? optional, * any number, + any number of any types.
# An operator that is deprecated since a version has no more than NAME SINCE x.
# An attribute is NAME:TYPE, the type as in AttributeProto; ! if it is required; *:0 stands for any others.
"""


class Formal:
    """An input or output of a schema."""

    def __init__(self, formal):
        text = getattr(formal, "type_str", None) or formal.typeStr
        self.parameter = text if "(" not in text else None
        self.types = frozenset(formal.types)
        self.option = int(getattr(formal.option, "value", formal.option))
        homogeneous = getattr(formal, "is_homogeneous", None)
        self.homogeneous = formal.isHomogeneous if homogeneous is None else homogeneous

    def mark(self):
        return {SINGLE: "", OPTIONAL: "?"}.get(self.option, "*" if self.homogeneous else "+")


class Schema:
    """A version of an operator, read from either package."""

    def __init__(self, schema):
        self.domain, self.name, self.since = schema.domain, schema.name, schema.since_version
        self.deprecated = schema.deprecated
        self.minima = (schema.min_input, schema.min_output)
        self.inputs = [Formal(formal) for formal in schema.inputs]
        self.outputs = [Formal(formal) for formal in schema.outputs]
        for formals, most in ((self.inputs, schema.max_input), (self.outputs, schema.max_output)):
            is_open = bool(formals) and formals[-1].option == VARIADIC
            assert is_open == (most == UNLIMITED) and (is_open or most == len(formals)), (self.name, most)
        self.attributes = {
            name: (int(getattr(attribute.type, "value", attribute.type)), attribute.required)
            for name, attribute in schema.attributes.items()
        }
        if self.domain in CONTRIBUTED and self.name in UNCHECKED:
            self.attributes["*"] = (0, False)

    def key(self):
        return self.domain, self.name, self.since

    def allow(self, other):
        """Also allows what `other` does, the same version in the other package."""
        self.minima = tuple(map(min, self.minima, other.minima))
        for mine, theirs in ((self.inputs, other.inputs), (self.outputs, other.outputs)):
            assert len(mine) == len(theirs), self.key()
            for one, two in zip(mine, theirs):
                one.types |= two.types
                one.option = max(one.option, two.option)
        for name, (kind, required) in other.attributes.items():
            _, also = self.attributes.get(name, (kind, False))
            self.attributes[name] = (kind, required and also)


def schemas():
    """All versions by domain, name and version."""
    found = {}
    for schema in map(Schema, defs.get_all_schemas_with_history()):
        if schema.domain in STANDARD:
            found[schema.key()] = schema
    for schema in map(Schema, runtime.get_all_operator_schema()):
        if schema.key() in found:
            found[schema.key()].allow(schema)
        elif schema.domain in STANDARD + CONTRIBUTED:
            found[schema.key()] = schema
    return [found[key] for key in sorted(found)]


class Table:
    """The lines of the file, with types and sets as they are met."""

    def __init__(self, all_schemas):
        formals = [formal for schema in all_schemas for formal in schema.inputs + schema.outputs]
        self.types = {name: number for number, name in enumerate(sorted({kind for formal in formals for kind in formal.types}))}
        self.sets = {}

    def set_of(self, types):
        bits = sum(1 << self.types[name] for name in types)
        return self.sets.setdefault(bits, len(self.sets))

    def formals(self, formals, parameters):
        words = []
        for formal in formals:
            number = self.set_of(formal.types)
            name = formal.parameter
            if name is not None and parameters.setdefault(name, number) != number:
                name = None
            words.append((name or f"={number}") + formal.mark())
        return " ".join(words)

    def line(self, schema):
        if schema.deprecated:
            return f"{schema.name} {schema.since} x"
        parameters = {}
        inputs, outputs = self.formals(schema.inputs, parameters), self.formals(schema.outputs, parameters)
        types = " ".join(f"{name}={number}" for name, number in parameters.items())
        attributes = " ".join(
            f"{name}:{kind}{'!' if required else ''}" for name, (kind, required) in sorted(schema.attributes.items())
        )
        return f"{schema.name} {schema.since} {schema.minima[0]} {schema.minima[1]}|{inputs}|{outputs}|{types}|{attributes}"


def main():
    import onnxruntime

    all_schemas = schemas()
    table = Table(all_schemas)
    lines, domain = [], None
    for schema in all_schemas:
        if schema.domain != domain:
            domain = schema.domain
            latest = max(schema.since for schema in all_schemas if schema.domain == domain)
            lines.append(f"domain {domain or 'ai.onnx'} {latest}")
        lines.append(table.line(schema))
    print(HEAD.format(onnx=onnx.__version__, runtime=onnxruntime.__version__), end="")
    print(f"ir {int(onnx.IR_VERSION)}")
    print("types " + " ".join(name.replace(" ", "") for name in table.types))
    for bits in table.sets:
        print(f"set {bits:x}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
