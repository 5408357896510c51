//! Rules that ONNX Runtime enforces when it loads a correctly encoded model, one variant per check.

/// Why ONNX Runtime rejects a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The IR version is newer than the latest known one.
    #[error("unknown IR version {found}: expected at most {latest}")]
    IrVersion {
        /// The version in the file.
        found: i64,
        /// The latest known version.
        latest: i64,
    },
    /// The version of an operator set is newer than the latest known one.
    #[error("unknown opset {found} of {domain}: expected at most {latest}")]
    Opset {
        /// The domain.
        domain: String,
        /// The version in the file.
        found: i64,
        /// The latest known version.
        latest: i64,
    },
    /// The model does not import the domain of a node.
    #[error("missing opset_import for the domain `{domain}`")]
    MissingImport {
        /// The domain.
        domain: String,
    },
    /// The operator of a node does not exist.
    #[error("opset {version} of {domain} has no operator `{operator}`")]
    UnknownOperator {
        /// The operator.
        operator: String,
        /// Its domain.
        domain: String,
        /// The version that the model imports.
        version: i64,
    },
    /// The operator of a node was removed before this opset.
    #[error("`{operator}` is deprecated since opset {since}: export the model without it")]
    Deprecated {
        /// The operator.
        operator: String,
        /// The version that deprecated it.
        since: i64,
    },
    /// A node has too many or too few inputs or outputs.
    #[error("`{operator}` has {found} {what}: expected {expected}")]
    ArgumentCount {
        /// The operator.
        operator: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// The actual number.
        found: usize,
        /// The allowed numbers.
        expected: String,
    },
    /// A node omits a required input or output.
    #[error("`{operator}` omits {what} {position}, which is required")]
    OmittedArgument {
        /// The operator.
        operator: String,
        /// `input` or `output`.
        what: &'static str,
        /// Its position from 0.
        position: usize,
    },
    /// An attribute is unknown to the operator.
    #[error("`{operator}` has no attribute `{name}`")]
    UnknownAttribute {
        /// The operator.
        operator: String,
        /// The attribute.
        name: String,
    },
    /// A required attribute is missing.
    #[error("`{operator}` needs the attribute `{name}`, which is missing")]
    MissingAttribute {
        /// The operator.
        operator: String,
        /// The attribute.
        name: &'static str,
    },
    /// An attribute has another type than in the operator's schema.
    #[error("the attribute `{name}` is {found}: expected {expected}")]
    AttributeType {
        /// The attribute.
        name: String,
        /// The type in the file.
        found: &'static str,
        /// The type of the schema.
        expected: &'static str,
    },
    /// An attribute's value differs from its stated type.
    #[error("the attribute `{name}` states the type {stated}, but its value is {found}")]
    AttributeValue {
        /// The attribute.
        name: String,
        /// The stated type.
        stated: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// An attribute occurs twice.
    #[error("the attribute `{name}` appears twice")]
    AttributeTwice {
        /// The attribute.
        name: String,
    },
    /// An attribute lacks a name.
    #[error("an attribute has no name")]
    AttributeUnnamed,
    /// An attribute lacks its type, which is required since IR version 2.
    #[error("the attribute `{name}` has no type")]
    AttributeUntyped {
        /// The attribute.
        name: String,
    },
    /// The operator does not accept the type of an input.
    #[error("`{operator}` does not accept {found} as input {position}")]
    InputType {
        /// The operator.
        operator: String,
        /// The input's position from 0.
        position: usize,
        /// Its type.
        found: &'static str,
    },
    /// Two inputs that must have the same type differ.
    #[error(
        "`{operator}` takes inputs of one type, but input {position} is {found} and an earlier one is {earlier}"
    )]
    InputTypes {
        /// The operator.
        operator: String,
        /// The position of the later input, from 0.
        position: usize,
        /// Its type.
        found: &'static str,
        /// The type of the earlier input.
        earlier: &'static str,
    },
    /// A value's declared type differs from its actual type.
    #[error("`{name}` is declared as {declared}, but is {found}")]
    DeclaredType {
        /// The value.
        name: String,
        /// The declared type.
        declared: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// A name occurs twice in a graph.
    #[error("{what} `{name}` occurs twice in one graph")]
    DuplicateName {
        /// The kind of the named item.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A node's output has the name of an input or initializer of an enclosing graph.
    #[error("the node's output `{name}` is also an input or initializer of an enclosing graph")]
    Shadows {
        /// The name.
        name: String,
    },
    /// A node uses an undefined value.
    #[error("nothing defines the node's input `{name}`")]
    Undefined {
        /// The value.
        name: String,
    },
    /// A node of a subgraph or function precedes the node whose output it uses.
    #[error("the node precedes the node that defines its input `{name}`")]
    Unsorted {
        /// The value.
        name: String,
    },
    /// Nodes depend on each other's outputs.
    #[error("the graph has a cycle: this node depends on its own output")]
    Cycle,
    /// An output of a subgraph or function is undefined.
    #[error("nothing inside defines the output `{name}`")]
    OutputNotMade {
        /// The output.
        name: String,
    },
    /// Functions call each other recursively.
    #[error("the function calls itself, directly or through others")]
    Recursion,
    /// The length of a tensor's data differs from its type and shape.
    #[error("the tensor has {found} of data in the file: expected {expected}")]
    DataLength {
        /// The actual length.
        found: String,
        /// The required length.
        expected: String,
    },
    /// A tensor has a negative dimension.
    #[error("the tensor has a negative dimension")]
    NegativeDimension,
    /// An input of the model lacks a type.
    #[error("the input `{name}` has no type, and no initializer gives it one")]
    InputUntyped {
        /// The input.
        name: String,
    },
    /// A constant lacks a value.
    #[error("`Constant` has no value: expected an attribute with a tensor, number or string")]
    MissingConstantValue,
    /// A graph in an attribute has too many or too few inputs or outputs.
    #[error("the graph `{attribute}` of `{operator}` has {found} {what}: expected {expected}")]
    GraphCount {
        /// The operator.
        operator: String,
        /// The attribute.
        attribute: &'static str,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// The actual number.
        found: usize,
        /// The number that the node requires.
        expected: usize,
    },
    /// An input or output of a graph in an attribute has another type than its node requires.
    #[error("{what} {position} of the graph `{attribute}` is {found}: its node needs {expected}")]
    GraphType {
        /// The attribute.
        attribute: &'static str,
        /// `input` or `output`.
        what: &'static str,
        /// Its position from 0.
        position: usize,
        /// Its actual type.
        found: &'static str,
        /// The type that the node requires.
        expected: &'static str,
    },
    /// A number is not a valid element type.
    #[error("invalid element type {found}")]
    ElementType {
        /// The number.
        found: i64,
    },
}
