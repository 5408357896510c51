//! ONNX models: reads a file, prepares its graph for the library, and supplies the operators that
//! the library lacks or computes wrongly.

mod attention;
mod checks;
mod exact;
mod functions;
mod fused;
mod graph;
mod known_wrong;
mod library;
mod located;
mod names;
mod narrow;
mod node_operator;
mod operators;
mod quantised;
mod recurrent;
mod repair;
mod scaled;
mod sequences;
mod slim;
pub(crate) mod source;
mod steps;
mod weights;

/// Returns the full names of the operators that the engine runs, sorted.
pub(crate) fn operator_names() -> Vec<String> {
    checks::known_operators(&source::reader())
}
