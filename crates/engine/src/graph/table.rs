//! Tables of rows that have names.

/// A table of supported nodes: the kinds of a row share what the row says.
pub(crate) type NodeTable<T> = &'static [(&'static [&'static str], T)];

/// Returns the row of this kind.
pub(crate) fn find<T: Copy>(tables: &[NodeTable<T>], kind: &str) -> Option<T> {
    let mut rows = tables.iter().copied().flatten();
    rows.find(|(kinds, _)| kinds.contains(&kind))
        .map(|(_, row)| *row)
}

/// Returns the kinds of all rows.
#[cfg(test)]
pub(crate) fn kinds<T>(tables: &[NodeTable<T>]) -> Vec<&'static str> {
    let rows = tables.iter().copied().flatten();
    rows.flat_map(|(kinds, _)| kinds.iter().copied()).collect()
}

/// Returns what a table of pairs has for a name.
pub(crate) fn look_up<T: Copy>(rows: &[(&str, T)], name: &str) -> Option<T> {
    let row = rows.iter().find(|(known, _)| *known == name);
    row.map(|(_, value)| *value)
}

/// Returns the names in a table of pairs.
pub(crate) const fn names_of<const N: usize, T>(
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
