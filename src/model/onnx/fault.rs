//! What ONNX Runtime refuses in a model whose encoding is sound, one variant for each of its checks.

/// Why ONNX Runtime does not load a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A model of a later IR version than the latest that is known.
    #[error("unknown IR version {found}: expected at most {latest}")]
    IrVersion {
        /// The version in the file.
        found: i64,
        /// The latest known version.
        latest: i64,
    },
    /// An operator set of a later version than the latest that is known.
    #[error("unknown opset {found} of {domain}: expected at most {latest}")]
    Opset {
        /// The domain.
        domain: String,
        /// The version in the file.
        found: i64,
        /// The latest known version.
        latest: i64,
    },
    /// A node of a domain whose version the model does not import.
    #[error("no opset_import gives the version of the domain `{domain}`")]
    NoImport {
        /// The domain.
        domain: String,
    },
    /// A node of an operator that does not exist.
    #[error("opset {version} of {domain} has no operator `{operator}`")]
    NoOperator {
        /// The operator.
        operator: String,
        /// Its domain.
        domain: String,
        /// The version that the model imports.
        version: i64,
    },
    /// A node of an operator that this opset no longer has.
    #[error("`{operator}` is deprecated since opset {since}: export the model without it")]
    Deprecated {
        /// The operator.
        operator: String,
        /// The version that deprecated it.
        since: i64,
    },
    /// A node with too many or too few inputs or outputs.
    #[error("`{operator}` has {found} {what}: expected {expected}")]
    Count {
        /// The operator.
        operator: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many it has.
        found: usize,
        /// How many it may have.
        expected: String,
    },
    /// A node that leaves out an input or output that is not optional.
    #[error("`{operator}` leaves {what} {position} empty, which is not optional")]
    Empty {
        /// The operator.
        operator: String,
        /// `input` or `output`.
        what: &'static str,
        /// Its position from 0.
        position: usize,
    },
    /// An attribute that the operator does not have.
    #[error("`{operator}` has no attribute `{name}`")]
    UnknownAttribute {
        /// The operator.
        operator: String,
        /// The attribute.
        name: String,
    },
    /// A required attribute that the node lacks.
    #[error("`{operator}` needs the attribute `{name}`, which is missing")]
    MissingAttribute {
        /// The operator.
        operator: String,
        /// The attribute.
        name: &'static str,
    },
    /// An attribute of another type than the operator's.
    #[error("the attribute `{name}` is {found}: expected {expected}")]
    AttributeType {
        /// The attribute.
        name: String,
        /// The type in the file.
        found: &'static str,
        /// The type of the schema.
        expected: &'static str,
    },
    /// An attribute whose value is not of the type that it states.
    #[error("the attribute `{name}` states the type {stated}, but its value is {found}")]
    AttributeValue {
        /// The attribute.
        name: String,
        /// The stated type.
        stated: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A second attribute of the same name.
    #[error("the attribute `{name}` appears twice")]
    AttributeTwice {
        /// The attribute.
        name: String,
    },
    /// An attribute without a name.
    #[error("an attribute has no name")]
    AttributeUnnamed,
    /// An attribute that does not state its type, which models of IR version 2 and later must.
    #[error("the attribute `{name}` states no type")]
    AttributeUntyped {
        /// The attribute.
        name: String,
    },
    /// An input of a type that the operator does not take.
    #[error("`{operator}` does not take {found} as input {position}")]
    InputType {
        /// The operator.
        operator: String,
        /// The input's position from 0.
        position: usize,
        /// Its type.
        found: &'static str,
    },
    /// Two inputs that must be of one type and are not.
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
    /// A value that is declared as another type than it is made as.
    #[error("`{name}` is declared as {declared}, but is {found}")]
    DeclaredType {
        /// The value.
        name: String,
        /// The declared type.
        declared: &'static str,
        /// The type that it has.
        found: &'static str,
    },
    /// Two things of one name in a graph.
    #[error("{what} `{name}` is there twice in one graph")]
    Twice {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A node that gives its output the name of a value of the graph around it.
    #[error("the node's output `{name}` is also an input or initializer of a graph around it")]
    Shadows {
        /// The name.
        name: String,
    },
    /// A node that uses a value that nothing defines.
    #[error("nothing defines the node's input `{name}`")]
    Undefined {
        /// The value.
        name: String,
    },
    /// A node of a subgraph or function that stands before the one whose output it uses.
    #[error("the node stands before the one that makes its input `{name}`")]
    Unsorted {
        /// The value.
        name: String,
    },
    /// Nodes that need one another's outputs.
    #[error("the graph has a cycle: this node depends on its own output")]
    Cycle,
    /// An output of a subgraph or function that nothing in it makes.
    #[error("nothing inside makes the output `{name}`")]
    OutputNotMade {
        /// The output.
        name: String,
    },
    /// Functions that call one another in a circle.
    #[error("the function calls itself, directly or through others")]
    Recursion,
    /// A tensor whose data has another length than its type and shape need.
    #[error("the tensor has {found} of data in the file: expected {expected}")]
    DataLength {
        /// How much it has.
        found: String,
        /// How much it needs.
        expected: String,
    },
    /// A tensor with a dimension below zero.
    #[error("the tensor has a negative dimension")]
    NegativeDimension,
    /// An input of the model without a type.
    #[error("the input `{name}` states no type, and no initializer gives it one")]
    InputUntyped {
        /// The input.
        name: String,
    },
    /// A constant without a value.
    #[error("`Constant` has no value: expected an attribute with a tensor, number or string")]
    NoConstant,
    /// A graph in an attribute with too many or too few inputs or outputs.
    #[error("the graph `{attribute}` of `{operator}` has {found} {what}: expected {expected}")]
    GraphCount {
        /// The operator.
        operator: String,
        /// The attribute.
        attribute: &'static str,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many it has.
        found: usize,
        /// How many its node needs.
        expected: usize,
    },
    /// An input or output of a graph in an attribute that has another type than its node needs.
    #[error("{what} {position} of the graph `{attribute}` is {found}: its node needs {expected}")]
    GraphType {
        /// The attribute.
        attribute: &'static str,
        /// `input` or `output`.
        what: &'static str,
        /// Its position from 0.
        position: usize,
        /// Its type.
        found: &'static str,
        /// The type that it needs.
        expected: &'static str,
    },
    /// A number that is no element type.
    #[error("{found} is no element type")]
    ElementType {
        /// The number.
        found: i64,
    },
}
