//! Statements for PostgreSQL, from those that are written for both kinds of databases.

use std::borrow::Cow;

/// A hint to SQLite, which the name of an index follows.
const INDEX_HINT: &str = " INDEXED BY ";

/// Returns a statement with parameters `$1` in place of `?1`, and without hints.
pub(super) fn for_postgres(sql: &str) -> Cow<'_, str> {
    let mut sql = Cow::Borrowed(sql);
    if sql.contains('?') {
        sql = Cow::Owned(sql.replace('?', "$"));
    }
    while let Some(start) = sql.find(INDEX_HINT) {
        let name = start + INDEX_HINT.len();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = sql[name..].find(|c| !is_name(c));
        let end = end.map_or(sql.len(), |end| name + end);
        sql.to_mut().replace_range(start..end, "");
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_hints_are_those_of_postgresql() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            (
                "SELECT a FROM b WHERE a = ?1 AND c = ?12",
                "SELECT a FROM b WHERE a = $1 AND c = $12",
            ),
            (
                "SELECT a FROM b INDEXED BY b_of_c WHERE d",
                "SELECT a FROM b WHERE d",
            ),
            (
                "SELECT 1 FROM a INDEXED BY x, b INDEXED BY y",
                "SELECT 1 FROM a, b",
            ),
        ] {
            assert_eq!(for_postgres(sql), expected);
        }
    }
}
