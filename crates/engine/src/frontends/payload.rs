//! The parts that all lowerings of delegate payloads share: the call of a payload's graph
//! ([`PayloadCall`]), the tables of supported nodes, and the order of nodes ([`lower_nodes`]).

use crate::graph::builder::Builder;
use crate::graph::frame::MethodFrame;
use crate::graph::guard::{LibraryFailure, guarded};
use pkgtool_model::executorch::body::ByteRange;
use tract_onnx::tract_core::internal::TractResult;

/// A call of a payload's graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PayloadCall<'a> {
    /// Name of the call's place in the program.
    pub(crate) scope: &'a str,
    /// The place of the payload.
    pub(crate) payload: ByteRange,
    /// Indices of the method's values: the graph's inputs, then its outputs.
    pub(crate) args: &'a [usize],
}

impl<'a> PayloadCall<'a> {
    /// Splits the arguments into inputs and outputs, after checking their number.
    pub(crate) fn split(
        &self,
        frame: &mut MethodFrame<'_>,
        inputs: usize,
        outputs: usize,
    ) -> Result<(&'a [usize], &'a [usize]), LibraryFailure> {
        if self.args.len() != inputs + outputs {
            return Err(LibraryFailure::new(format!(
                "wrong number of arguments of a delegate call: expected {inputs} inputs and {outputs} outputs, got {}",
                self.args.len()
            )));
        }
        frame.builder.set_scope(self.scope.to_owned());
        Ok(self.args.split_at(inputs))
    }
}

/// Lowers nodes of these kinds in order. A failure names the node; `word` is the word for one.
pub(crate) fn lower_nodes<'n, L, N: 'n>(
    lowering: &mut L,
    builder: fn(&mut L) -> &mut Builder,
    (scope, word): (&str, &str),
    nodes: impl Iterator<Item = (&'n str, &'n N)>,
    lower: impl Fn(&mut L, &'n N) -> TractResult<()>,
) -> Result<(), LibraryFailure> {
    for (at, (kind, node)) in nodes.enumerate() {
        builder(lowering).set_scope(format!("{scope} {kind} {at}"));
        guarded(|| lower(lowering, node))
            .map_err(|failure| failure.at(Some(format!("{kind} ({word} {at} of {scope})"))))?;
    }
    Ok(())
}
