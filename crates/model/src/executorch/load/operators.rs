//! The table of operators that ExecuTorch programs may call, from `operators.txt`.
//!
//! `tests/operators/kernels.py` generates that file and documents its line format. The text is
//! indexed once per process.

use std::sync::OnceLock;

use pkgtool_base::source::hashed::{Map, Set};

/// The text of the table.
const TABLE_TEXT: &str = include_str!("operators.txt");

/// Panic message for an invalid table; a test parses all of it.
const INVALID_TABLE: &str = "operators.txt is generated and tested as a whole";

/// Maximum number of overloads listed in a message.
const MAX_LISTED_OVERLOADS: usize = 12;

/// All operators of the known namespaces.
#[derive(Debug)]
pub(super) struct OperatorTable {
    /// The ExecuTorch version of the table.
    version: &'static str,
    namespaces: Set<&'static str>,
    /// Lines of overloads, by namespace and name.
    lines: Map<(&'static str, &'static str), &'static str>,
}

impl OperatorTable {
    /// Returns the table.
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<OperatorTable> = OnceLock::new();
        TABLE.get_or_init(|| Self::index(TABLE_TEXT))
    }

    fn index(text: &'static str) -> Self {
        let mut table = Self {
            version: "",
            namespaces: Set::default(),
            lines: Map::default(),
        };
        let mut namespace = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').expect(INVALID_TABLE);
            match word {
                "version" => table.version = rest,
                "namespace" => {
                    namespace = rest;
                    table.namespaces.insert(rest);
                }
                name => {
                    table.lines.insert((namespace, name), rest);
                }
            }
        }
        table
    }

    /// Returns the type letters of the arguments of an operator's kernel. Returns `None` for an
    /// operator without a kernel in ExecuTorch's own libraries, and for other namespaces. Fails
    /// with the expected names if the operator does not exist.
    pub(super) fn arguments(
        &self,
        name: &str,
        overload: &str,
    ) -> Result<Option<&'static str>, String> {
        let Some((namespace, base)) = name.split_once("::") else {
            return Ok(None);
        };
        if !self.namespaces.contains(namespace) {
            return Ok(None);
        }
        let version = self.version;
        let Some(line) = self.lines.get(&(namespace, base)) else {
            return Err(format!(
                "an operator of the namespace `{namespace}` in ExecuTorch {version}"
            ));
        };
        let wanted = if overload.is_empty() { "-" } else { overload };
        let known = || {
            let words = line.split(' ');
            words.map(|word| word.split_once(':').unwrap_or((word, "")))
        };
        if let Some((_, letters)) = known().find(|(known, _)| *known == wanted) {
            return Ok(Some(letters).filter(|letters| !letters.is_empty()));
        }
        let listed: Vec<String> = known()
            .take(MAX_LISTED_OVERLOADS)
            .map(|(overload, _)| match overload {
                "-" => format!("`{name}`"),
                _ => format!("`{name}.{overload}`"),
            })
            .collect();
        Err(format!("one of {}", listed.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::OperatorTable;
    use crate::executorch::load::kinds::ValueTypes;

    #[test]
    fn parses_every_line() {
        let table = OperatorTable::get();
        let mut kernels = 0;
        for (namespace, base) in table.lines.keys() {
            for word in table.lines[&(*namespace, *base)].split(' ') {
                let overload = word.split(':').next().unwrap_or_default();
                let overload = overload.trim_start_matches('-');
                let name = format!("{namespace}::{base}");
                let letters = table.arguments(&name, overload).expect("it is listed");
                kernels += usize::from(letters.is_some());
                let mut letters = letters.unwrap_or_default().bytes();
                assert!(letters.all(|letter| ValueTypes::from_letter(letter).is_some()));
            }
        }
        assert!(kernels > 230, "{kernels}");
        assert!(!table.version.is_empty());
    }

    #[test]
    fn distinguishes_names_and_overloads() {
        let arguments = |name, overload| OperatorTable::get().arguments(name, overload);
        assert_eq!(arguments("aten::add", "out"), Ok(Some("ttst.")));
        assert_eq!(arguments("aten::add", "Tensor"), Ok(None));
        assert_eq!(arguments("own::add", "out"), Ok(None));
        assert_eq!(arguments("add", "out"), Ok(None));
        assert!(arguments("aten::odd", "out").is_err_and(|it| it.contains("`aten`")));
        assert!(arguments("aten::relu", "Out").is_err_and(|it| it.contains("`aten::relu.out`")));
    }
}
