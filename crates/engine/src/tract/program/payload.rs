//! The parts that all lowerings of delegate payloads share: the call of a payload's graph
//! ([`PayloadCall`]), the tables of supported nodes, and the order of nodes ([`lower_nodes`]).

use super::super::guard::{Failure, guarded};
use super::builder::Builder;
use super::frame::Frame;
use pkgtool_model::executorch::body::ByteRange;
use tract_onnx::tract_core::internal::TractResult;

/// A call of a payload's graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadCall<'a> {
    /// Name of the call's place in the program.
    pub(super) scope: &'a str,
    /// The place of the payload.
    pub(super) payload: ByteRange,
    /// Indices of the method's values: the graph's inputs, then its outputs.
    pub(super) args: &'a [usize],
}

impl<'a> PayloadCall<'a> {
    /// Splits the arguments into inputs and outputs, after checking their number.
    pub(super) fn split(
        &self,
        frame: &mut Frame<'_>,
        inputs: usize,
        outputs: usize,
    ) -> Result<(&'a [usize], &'a [usize]), Failure> {
        if self.args.len() != inputs + outputs {
            return Err(Failure::new(format!(
                "wrong number of arguments of a delegate call: expected {inputs} inputs and {outputs} outputs, got {}",
                self.args.len()
            )));
        }
        frame.builder.set_scope(self.scope.to_owned());
        Ok(self.args.split_at(inputs))
    }
}

/// Lowers nodes of these kinds in order. A failure names the node; `word` is the word for one.
pub(super) fn lower_nodes<'n, L, N: 'n>(
    lowering: &mut L,
    builder: fn(&mut L) -> &mut Builder,
    (scope, word): (&str, &str),
    nodes: impl Iterator<Item = (&'n str, &'n N)>,
    lower: impl Fn(&mut L, &'n N) -> TractResult<()>,
) -> Result<(), Failure> {
    for (at, (kind, node)) in nodes.enumerate() {
        builder(lowering).set_scope(format!("{scope} {kind} {at}"));
        guarded(|| lower(lowering, node))
            .map_err(|failure| failure.at(Some(format!("{kind} ({word} {at} of {scope})"))))?;
    }
    Ok(())
}

/// A table of supported nodes: the kinds of a row share what the row says.
pub(super) type NodeTable<T> = &'static [(&'static [&'static str], T)];

/// Returns the row of this kind.
pub(super) fn find<T: Copy>(tables: &[NodeTable<T>], kind: &str) -> Option<T> {
    let mut rows = tables.iter().copied().flatten();
    rows.find(|(kinds, _)| kinds.contains(&kind))
        .map(|(_, row)| *row)
}

/// Returns the kinds of all rows.
#[cfg(test)]
pub(super) fn kinds<T>(tables: &[NodeTable<T>]) -> Vec<&'static str> {
    let rows = tables.iter().copied().flatten();
    rows.flat_map(|(kinds, _)| kinds.iter().copied()).collect()
}

/// Returns what a table of pairs has for a name.
pub(super) fn look_up<T: Copy>(rows: &[(&str, T)], name: &str) -> Option<T> {
    let row = rows.iter().find(|(known, _)| *known == name);
    row.map(|(_, value)| *value)
}

/// Returns the names in a table of pairs.
pub(super) const fn names_of<const N: usize, T>(
    rows: &[(&'static str, T); N],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = rows[at].0;
        at += 1;
    }
    names
}
