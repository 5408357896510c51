"""What a model file says of itself: the document of `pkgtool inspect --json`, with its types.

Version 1 of a contract that only grows. A class that ends in `Always` holds the keys that are always
there, the class below it adds those that may be missing.
"""

from typing import Dict, List, Optional, TypedDict, Union


class Dimension(TypedDict, total=False):
    """One dimension of a tensor of which some are dynamic."""

    #: `None` where the file does not tell.
    dynamic: Optional[bool]
    #: Of a dimension that is fixed.
    size: int
    #: The largest size, where there is one.
    bound: Optional[int]
    #: Its symbol, where it has one.
    name: Optional[str]
    #: The smallest size, and from one size to the next.
    least: int
    step: int
    #: All sizes.
    choices: List[int]


class Tensor(TypedDict, total=False):
    """A tensor's type."""

    name: str
    dtype: str
    #: As a config says it: -1 is a dynamic dimension. `None` where even their number is not known.
    shape: Optional[List[int]]
    #: `bounded`, `unbounded` or `symbolic`; absent for a tensor whose sizes are fixed.
    dynamism: str
    dims: List[Dimension]
    #: Of an output of a constant method.
    data: List[Union[bool, int, float, str, None]]


class Value(Tensor, total=False):
    """An input or an output. It is a tensor if it has `dtype`, else `kind` says what it is."""

    kind: str
    value: Union[bool, int, float, str]


class Weights(TypedDict):
    """Weights of one kind in a delegate's payload."""

    dtype: str
    bits: int
    #: How they are quantized.
    scheme: str
    group_size: Optional[int]
    tensors: int
    elements: int


class Port(TypedDict):
    """What a payload takes or gives; `None` is what it does not say."""

    name: Optional[str]
    dtype: Optional[str]
    shape: Optional[List[int]]


class Payload(TypedDict, total=False):
    """What a delegate's payload holds. One that cannot be read has `error` and `offset` only."""

    backend: str
    error: str
    offset: Optional[int]
    facts: Dict[str, str]
    function: Optional[str]
    functions: List[str]
    #: How often it computes in a dtype.
    computes: Dict[str, int]
    weights: List[Weights]
    #: What it takes and gives, where the payload names it.
    inputs: List[Port]
    outputs: List[Port]
    states: List[Tensor]
    #: How often it has an operator.
    operators: Dict[str, int]
    #: How many operators and states are not listed.
    left_out: int


class WrongInExecutorch(TypedDict):
    """What ExecuTorch's own runtime is known to compute wrongly."""

    operator: str
    what: str


class _MethodAlways(TypedDict):
    inputs: List[Value]
    outputs: List[Value]
    #: A method without inputs whose outputs are stored in the file.
    constant: bool
    #: An entry a delegated partition.
    delegates: List[str]
    delegate_payload_bytes: List[Optional[int]]
    #: How often it calls an operator.
    operators: Dict[str, int]


class Method(_MethodAlways, total=False):
    """One entry point of a model."""

    #: Whether it runs on any machine, and what keeps it from that. Not told by the validator alone.
    portable: bool
    missing: List[str]
    payloads: List[Optional[Payload]]
    wrong_in_executorch: List[WrongInExecutorch]


class Segment(TypedDict):
    """An area of the file outside the header."""

    name: str
    offset: int
    size_bytes: int


class External(TypedDict):
    """Data that the model needs from another file."""

    #: `None` where the file does not name the other one.
    location: Optional[str]
    needs_bytes: Optional[int]
    tensors: int
    names: List[str]


class _ModelInfoAlways(TypedDict):
    version: int
    #: `executorch`, `onnx`, …
    format: str
    format_version: str
    #: The program that wrote the file.
    producer: Optional[str]
    size_bytes: int
    #: Of weights inside the file.
    weight_bytes: int
    #: In the file's order.
    methods: Dict[str, Method]
    segments: List[Segment]
    external: List[External]
    metadata: Dict[str, str]


class ModelInfo(_ModelInfoAlways, total=False):
    """What a model file says of itself, from its header alone."""

    #: What a data file holds for models.
    data: List[Tensor]
