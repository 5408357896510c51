//! The operators that programs call, from `operators.txt`.
//!
//! `tests/operators/kernels.py` writes that file, which says how its lines read. The text is indexed once a process.

use std::sync::OnceLock;

use crate::source::hashed::{Map, Set};

/// The table.
const TEXT: &str = include_str!("operators.txt");

/// What is wrong with the table, if reading it fails; a test reads all of it.
const MALFORMED: &str = "the table is written by a script and tested as a whole";

/// Most overloads that a message lists.
const MOST_LISTED: usize = 12;

/// All operators of the namespaces that are known.
#[derive(Debug)]
pub(super) struct Operators {
    /// The version of ExecuTorch that the table is of.
    version: &'static str,
    namespaces: Set<&'static str>,
    /// Lines of overloads by namespace and name.
    lines: Map<(&'static str, &'static str), &'static str>,
}

impl Operators {
    /// Returns the table.
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<Operators> = OnceLock::new();
        TABLE.get_or_init(|| Self::index(TEXT))
    }

    fn index(text: &'static str) -> Self {
        let mut table = Self {
            version: "",
            namespaces: Set::default(),
            lines: Map::default(),
        };
        let mut namespace = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').expect(MALFORMED);
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

    /// Returns the letters of the arguments of an operator's kernel; `None` where ExecuTorch's own libraries have no
    /// kernel for it, and for those of other namespaces. Fails with what was expected if there is no such operator.
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
                "one that the namespace `{namespace}` has in ExecuTorch {version}"
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
            .take(MOST_LISTED)
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
    use super::Operators;
    use crate::model::executorch::load::kinds::Kinds;

    #[test]
    fn every_line_reads() {
        let table = Operators::get();
        let mut kernels = 0;
        for (namespace, base) in table.lines.keys() {
            for word in table.lines[&(*namespace, *base)].split(' ') {
                let overload = word.split(':').next().unwrap_or_default();
                let overload = overload.trim_start_matches('-');
                let name = format!("{namespace}::{base}");
                let letters = table.arguments(&name, overload).expect("it is listed");
                kernels += usize::from(letters.is_some());
                let mut letters = letters.unwrap_or_default().bytes();
                assert!(letters.all(|letter| Kinds::of_letter(letter).is_some()));
            }
        }
        assert!(kernels > 230, "{kernels}");
        assert!(!table.version.is_empty());
    }

    #[test]
    fn names_and_overloads_are_told_apart() {
        let arguments = |name, overload| Operators::get().arguments(name, overload);
        assert_eq!(arguments("aten::add", "out"), Ok(Some("ttst.")));
        assert_eq!(arguments("aten::add", "Tensor"), Ok(None));
        assert_eq!(arguments("own::add", "out"), Ok(None));
        assert_eq!(arguments("add", "out"), Ok(None));
        assert!(arguments("aten::odd", "out").is_err_and(|it| it.contains("`aten`")));
        assert!(arguments("aten::relu", "Out").is_err_and(|it| it.contains("`aten::relu.out`")));
    }
}
