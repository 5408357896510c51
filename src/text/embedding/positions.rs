//! How many positions a model knows, as its table of them shows.
//!
//! Invariant: what cannot be read, or has no telling name, says nothing. Cost is that of walking the
//! initializers once.

use std::path::Path;

use super::Said;
use crate::model::onnx::each_stored;
use crate::source::{FileSource, Pages};

/// Parts of the names of tables with a row for each position.
const NAMES: [&str; 5] = [
    "position_embeddings",
    "position_embedding",
    "positional_embedding",
    "pos_embedding",
    "wpe",
];

/// The whole name of a table that an exporter wrote by itself.
const WHOLE: [&str; 2] = ["positions", "pos_embed"];

/// Rows of the smallest table of positions in an ONNX model.
pub(super) fn table_rows(model: &Path, format: &str) -> Option<Said<usize>> {
    if format != "onnx" {
        return None;
    }
    let file = FileSource::open(model).ok()?;
    let mut found: Option<Said<usize>> = None;
    let walked = each_stored(&Pages::new(&file), &mut |name, stored| {
        let Some(rows) = rows(&name, &stored.dims) else {
            return;
        };
        if found.as_ref().is_none_or(|least| rows < least.value) {
            found = Some(Said {
                value: rows,
                by: format!("rows of its table `{name}`"),
            });
        }
    });
    walked.ok()?;
    found
}

/// Rows of a table of this name and shape, if it is one of positions: `[rows, width]`, with ones before.
fn rows(name: &str, dims: &[u64]) -> Option<usize> {
    let parts: Vec<&str> = name.split(['.', '/']).collect();
    let is_named = parts.iter().any(|part| NAMES.contains(part)) || WHOLE.contains(&name);
    let [before @ .., rows, width] = dims else {
        return None;
    };
    let is_table = is_named && before.iter().all(|size| *size == 1) && *rows > 1 && *width > 1;
    if is_table {
        usize::try_from(*rows).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn tables_are_known_by_name_and_shape() {
        let bert = "bert.embeddings.position_embeddings.weight";
        assert_eq!(rows(bert, &[512, 384]), Some(512));
        assert_eq!(rows("positions", &[1, 24, 32]), Some(24));
        assert_eq!(rows("transformer.wpe.weight", &[1024, 768]), Some(1024));
        assert_eq!(
            rows("embeddings.word_embeddings.weight", &[30522, 384]),
            None
        );
        assert_eq!(rows("relative_attention_bias.weight", &[32, 12]), None);
        assert_eq!(rows(bert, &[512]), None);
        assert_eq!(rows("positions", &[2, 24, 32]), None);
    }
}
