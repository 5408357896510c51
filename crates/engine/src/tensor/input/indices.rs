//! Finds inputs that are indices into a table of the model (embeddings), and the table's number of
//! rows.
//!
//! Invariant: unreadable models and unsupported nodes yield nothing. The cost is one walk over the
//! nodes.

use std::collections::HashMap;
use std::path::Path;

use crate::tensor::Signature;
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::executorch::body::{BodyValue, Instruction, MethodBody, ProgramBody};
use pkgtool_model::onnx::{OnnxNode, each_initializer, each_node};

/// Program operators that look up rows, with the position of the indices among their arguments. The
/// table is the first argument.
const LOOKUPS: [(&str, usize); 7] = [
    ("aten::embedding.out", 1),
    ("quantized_decomposed::embedding_byte.out", 5),
    ("quantized_decomposed::embedding_byte.dtype_out", 5),
    ("quantized_decomposed::embedding_4bit.out", 5),
    ("quantized_decomposed::embedding_4bit.dtype_out", 5),
    ("quantized_decomposed::embedding_2bit.out", 5),
    ("quantized_decomposed::embedding_2bit.dtype_out", 5),
];

/// Returns, for each input of a model's method, the number of rows of the smallest table that its
/// elements index; `None` for an input that indexes no table.
pub fn table_rows(model: &Path, format: &str, signature: &Signature) -> Vec<Option<u64>> {
    let count = signature.inputs.len();
    let found = match format {
        "onnx" => of_onnx(model, signature),
        "executorch" => of_program(model, &signature.method),
        _ => None,
    };
    let found = found.filter(|rows| rows.len() == count);
    found.unwrap_or_else(|| vec![None; count])
}

fn of_onnx(model: &Path, signature: &Signature) -> Option<Vec<Option<u64>>> {
    let file = FileSource::open(model).ok()?;
    let mut tables = HashMap::new();
    each_initializer(&Pages::new(&file), &mut |name, stored| {
        tables.insert(name, stored.dims);
    })
    .ok()?;
    let inputs = signature.inputs.iter().enumerate();
    let mut from: HashMap<String, usize> = inputs
        .map(|(place, spec)| (spec.name.clone(), place))
        .collect();
    let mut rows = vec![None; signature.inputs.len()];
    let mut visit = |node: &OnnxNode| match node.operator.as_str() {
        // These nodes keep the elements unchanged.
        "Cast" | "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Transpose" => {
            let input = node.inputs.first().and_then(|name| from.get(name));
            if let (Some(input), Some(output)) = (input.copied(), node.outputs.first()) {
                from.insert(output.clone(), input);
            }
        }
        "Gather" => {
            let indices = node.inputs.get(1).and_then(|name| from.get(name));
            let table = node.inputs.first().and_then(|name| tables.get(name));
            if let (Some(input), Some(table)) = (indices, table) {
                let axis = usize::try_from(node.int("axis")).ok();
                lower(&mut rows[*input], axis.and_then(|axis| table.get(axis)));
            }
        }
        _ => {}
    };
    each_node(&Pages::new(&file), &mut |node| visit(node)).ok()?;
    Some(rows)
}

fn of_program(model: &Path, method: &str) -> Option<Vec<Option<u64>>> {
    let file = FileSource::open(model).ok()?;
    let program = ProgramBody::read(&file).ok()?;
    let method = program.method(method)?;
    let mut rows = vec![None; method.inputs.len()];
    for instruction in &method.instructions {
        let Instruction::Kernel { operator, args } = instruction else {
            continue;
        };
        let operator = method.operators.get(*operator)?;
        let Some((_, indices)) = LOOKUPS.iter().find(|(name, _)| name == operator) else {
            continue;
        };
        let input = args.get(*indices).and_then(|value| input(method, *value));
        let table = args.first().and_then(|value| method.values.get(*value));
        if let (Some(input), Some(BodyValue::Tensor(table))) = (input, table) {
            lower(&mut rows[input], table.sizes.first());
        }
    }
    Some(rows)
}

/// Returns the index of the input that a value is.
fn input(method: &MethodBody, value: usize) -> Option<usize> {
    method.inputs.iter().position(|input| *input == value)
}

fn lower(known: &mut Option<u64>, rows: Option<&u64>) {
    if let Some(rows) = rows {
        *known = Some(known.map_or(*rows, |known| known.min(*rows)));
    }
}
