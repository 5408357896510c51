//! Detects a model's maximum number of positions from the size of its position embedding table.
//!
//! Invariant: unreadable models and unrecognised names yield nothing. The cost is one walk over the
//! initializers.

use std::path::Path;

use super::Sourced;
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::onnx::each_initializer;

/// Name parts of tables with one row per position.
const TABLE_NAME_PARTS: [&str; 5] = [
    "position_embeddings",
    "position_embedding",
    "positional_embedding",
    "pos_embedding",
    "wpe",
];

/// Complete names of such tables, as some exporters write them.
const TABLE_NAMES: [&str; 2] = ["positions", "pos_embed"];

/// Returns the number of rows of the smallest position table in an ONNX model.
pub(super) fn table_rows(model: &Path, format: &str) -> Option<Sourced<usize>> {
    if format != "onnx" {
        return None;
    }
    let file = FileSource::open(model).ok()?;
    let mut found: Option<Sourced<usize>> = None;
    let walked = each_initializer(&Pages::new(&file), &mut |name, stored| {
        let Some(rows) = rows(&name, &stored.dims) else {
            return;
        };
        if found.as_ref().is_none_or(|least| rows < least.value) {
            found = Some(Sourced {
                value: rows,
                by: format!("the rows of its table `{name}`"),
            });
        }
    });
    walked.ok()?;
    found
}

/// Returns the number of rows if the name and the shape are those of a position table: `[rows,
/// width]`, with leading ones.
fn rows(name: &str, dims: &[u64]) -> Option<usize> {
    let parts: Vec<&str> = name.split(['.', '/']).collect();
    let is_named =
        parts.iter().any(|part| TABLE_NAME_PARTS.contains(part)) || TABLE_NAMES.contains(&name);
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
