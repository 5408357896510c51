"""Graphs of MLX written instruction by instruction, for what no exporter writes of ordinary networks."""

import typing
from dataclasses import dataclass, field

import torch

CHAINS = ("main", "init")


@dataclass
class Place:
    """A slot: a tensor's or a number's."""

    kind: str
    index: int = -1
    like: torch.Tensor | None = None
    name: str | None = None


@dataclass
class Graph:
    """A graph that grows. Methods return the places that they write."""

    inputs: list = field(default_factory=list)
    results: list = field(default_factory=list)
    places: list = field(default_factory=list)
    chains: dict = field(default_factory=lambda: {name: [] for name in CHAINS})

    def place(self, kind, like=None, name=None):
        """A new slot."""
        place = Place(kind, like=like, name=name)
        self.places.append(place)
        return place

    def constant(self, tensor):
        """A tensor that the program stores."""
        count = sum(place.kind == "constant" for place in self.places)
        return self.place("constant", tensor.contiguous(), f"constant {count}")

    def state(self, tensor, name):
        """A tensor that is kept from run to run; it begins as zero."""
        return self.place("buffer", tensor, name)

    def emit(self, kind, out=None, chain="main", **fields):
        """Adds an instruction. It writes `out`, or a new slot."""
        from executorch.backends.mlx.serialization import mlx_graph_schema as schema

        node = getattr(schema, f"{kind}Node")
        hints = typing.get_type_hints(node)
        if "out" in hints:
            out = out or self.place("value" if hints["out"] is schema.Vid else "temp")
            fields["out"] = out
        self.chains[chain].append((node, hints, fields))
        return out

    def give(self, place):
        """Makes a slot the next output."""
        if place.kind != "temp":
            place = self.emit("IdCopy", x=place)
        place.kind = "output"
        self.results.append(place)

    def finished(self, answers):
        """The graph as the serialiser takes it, whose outputs are like `answers`, and its constants."""
        from executorch.backends.mlx.builder.op_helpers import torch_dtype_to_scalar_type
        from executorch.backends.mlx.serialization import mlx_graph_schema as schema

        for place, answer in zip(self.results, answers, strict=True):
            place.like = answer
        # Every result is a slot of its own in the order of the outputs.
        kinds = ("constant", "input", "output", "buffer", "temp")
        by_kind = {kind: [p for p in self.places if p.kind == kind] for kind in kinds}
        by_kind["output"] = self.results
        tensors = [place for kind in kinds for place in by_kind[kind]]
        values = [place for place in self.places if place.kind == "value"]
        for group in (tensors, values):
            for index, place in enumerate(group):
                place.index = index

        def slots(places):
            return [schema.SlotVariant(idx=place.index) for place in places]

        def meta(tensor):
            dims = [schema.ShapeDim(value=size) for size in tensor.shape]
            order = list(range(tensor.dim()))
            return schema.TensorMeta(dims, torch_dtype_to_scalar_type(tensor.dtype), order)

        chains = [
            schema.InstructionChain(
                [
                    schema.Instruction(node(**converted(hints, fields, schema)))
                    for node, hints, fields in chain
                ]
            )
            for chain in self.chains.values()
        ]
        graph = schema.MLXGraph(
            instruction_chains=chains,
            version="1",
            num_constant_tensors=len(by_kind["constant"]),
            num_input_tensors=len(by_kind["input"]),
            num_output_tensors=len(by_kind["output"]),
            num_mutable_buffer_tensors=len(by_kind["buffer"]),
            num_temp_tensors=len(by_kind["temp"]),
            num_values=len(values),
            main_chain_idx=0,
            init_chain_idx=1 if self.chains["init"] else -1,
            input_map=slots(self.inputs),
            output_map=slots(self.results),
            mutable_buffer_map=slots(by_kind["buffer"]),
            named_slots=[
                schema.NamedSlot(place.name, slots([place])[0]) for place in tensors if place.name
            ],
            tensor_meta=[meta(place.like) for place in tensors if place.kind != "temp"],
        )
        return graph, {place.name: place.like for place in by_kind["constant"]}


def converted(hints, fields, schema):
    """Fields as the types of a node's table."""
    return {name: one(hints[name], value, schema) for name, value in fields.items()}


def one(hint, value, schema):
    """A field of this type."""
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return [one(item, each, schema) for each in value]
    if typing.get_origin(hint) is typing.Union:
        if value is None:
            return None
        return one(
            next(arg for arg in typing.get_args(hint) if arg is not type(None)), value, schema
        )
    is_value = isinstance(value, Place) and value.kind == "value"
    if hint is schema.Tid or hint is schema.Vid:
        return hint(value.index)
    if hint is schema.VidOrTid:
        return (
            hint.from_vid(schema.Vid(value.index))
            if is_value
            else hint.from_tid(schema.Tid(value.index))
        )
    if hint in (schema.IntOrVid, schema.FloatOrVid, schema.IntOrVidOrTid):
        if is_value:
            return hint.from_vid(schema.Vid(value.index))
        if isinstance(value, Place):
            return hint.from_tid(schema.Tid(value.index))
        return hint.from_literal(value)
    return value


def payload(name, method, answers, build):
    """The payload of a graph, and the data that the program stores under names."""
    from executorch.backends.mlx.serialization.mlx_graph_serialize import serialize_mlx_graph
    from executorch.exir._serialize._named_data_store import NamedDataStore

    graph = Graph()
    graph.inputs = [graph.place("input", like=value) for value in method.cases[0]]
    for place in build(graph, *graph.inputs):
        graph.give(place)
    graph, constants = graph.finished(answers)
    store = NamedDataStore()
    for key, tensor in constants.items():
        # By the name of the program: several must not share a key.
        store.add_named_data(f"{name}/{key}", tensor, alignment=16)
    for slot in graph.named_slots:
        slot.name = f"{name}/{slot.name}"
    return serialize_mlx_graph(graph), store.get_named_data_store_output()
