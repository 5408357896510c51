//! Operator schemas of ONNX and ONNX Runtime, parsed from `operators.txt`.
//!
//! `tests/operators/schemas.py` generates that file and documents its line format. The text is
//! indexed once per process; a schema is parsed when a model first uses it.

use std::sync::OnceLock;

use pkgtool_base::source::hashed::Map;

/// The table of schemas.
const TABLE_TEXT: &str = include_str!("operators.txt");

/// A set of types, one bit per type of the table.
pub(super) type TypeSet = u128;

/// Panic message for an invalid table; a test parses all of it.
const INVALID_TABLE: &str = "the table is written by a script and tested as a whole";

/// All domains and their operators.
#[derive(Debug)]
pub(super) struct Operators {
    /// The latest IR version.
    pub(super) ir_version: i64,
    types: Vec<&'static str>,
    sets: Vec<TypeSet>,
    domains: Map<&'static str, Domain>,
}

/// One domain.
#[derive(Debug)]
pub(super) struct Domain {
    /// The latest version of its operator set.
    pub(super) latest: i64,
    /// Schema lines by operator, from the oldest version to the latest.
    operators: Map<&'static str, Vec<(i64, &'static str)>>,
}

/// Result of looking up an operator in one version of its domain.
#[derive(Debug)]
pub(super) enum OperatorLookup {
    /// The operator does not exist in this version.
    Unknown,
    /// The operator was deprecated in the given version.
    Deprecated(i64),
    /// The operator exists and has this schema.
    Known(OperatorSchema),
}

/// A version of an operator.
#[derive(Debug)]
pub(super) struct OperatorSchema {
    pub(super) min_inputs: usize,
    pub(super) min_outputs: usize,
    pub(super) inputs: Vec<FormalParameter>,
    pub(super) outputs: Vec<FormalParameter>,
    pub(super) attributes: Vec<AttributeSchema>,
}

/// An input or output of a schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormalParameter {
    /// Its allowed types.
    pub(super) types: TypeSet,
    /// The number of its type parameter, if all values of that parameter must have the same type.
    pub(super) parameter: Option<usize>,
    pub(super) presence: Presence,
}

/// How often an input or output may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Single,
    Optional,
    Variadic,
}

/// An attribute of a schema.
#[derive(Debug)]
pub(super) struct AttributeSchema {
    pub(super) name: &'static str,
    /// Its type number in `AttributeProto.AttributeType`.
    pub(super) kind: u8,
    pub(super) required: bool,
}

impl Operators {
    /// Returns the table.
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<Operators> = OnceLock::new();
        TABLE.get_or_init(|| Self::index(TABLE_TEXT))
    }

    fn index(text: &'static str) -> Self {
        let mut table = Self {
            ir_version: 0,
            types: Vec::new(),
            sets: Vec::new(),
            domains: Map::default(),
        };
        let mut domain = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').expect(INVALID_TABLE);
            match word {
                "ir" => table.ir_version = number(rest),
                "types" => table.types = rest.split(' ').collect(),
                "set" => table
                    .sets
                    .push(TypeSet::from_str_radix(rest, 16).expect(INVALID_TABLE)),
                "domain" => {
                    let (name, latest) = rest.split_once(' ').expect(INVALID_TABLE);
                    domain = name;
                    let latest = number(latest);
                    let operators = Map::default();
                    table.domains.insert(name, Domain { latest, operators });
                }
                operator => {
                    let (since, rest) = rest.split_once(' ').expect(INVALID_TABLE);
                    let domain = table.domains.get_mut(domain).expect(INVALID_TABLE);
                    let versions = domain.operators.entry(operator).or_default();
                    versions.push((number(since), rest));
                }
            }
        }
        table
    }

    /// Returns the domain of this name; ONNX's own is `ai.onnx`.
    pub(super) fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Looks an operator up in a version of its domain.
    pub(super) fn entry(&self, domain: &Domain, operator: &str, version: i64) -> OperatorLookup {
        let versions = domain
            .operators
            .get(operator)
            .map_or(&[][..], Vec::as_slice);
        let newest = versions.iter().rev().find(|(since, _)| *since <= version);
        match newest {
            None => OperatorLookup::Unknown,
            Some((since, "x")) => OperatorLookup::Deprecated(*since),
            Some((_, line)) => OperatorLookup::Known(self.schema(line)),
        }
    }

    fn schema(&self, line: &'static str) -> OperatorSchema {
        let mut parts = line.split('|');
        let mut part = || parts.next().expect(INVALID_TABLE);
        let (min_inputs, min_outputs) = part().split_once(' ').expect(INVALID_TABLE);
        let (inputs, outputs, parameters, attributes) = (part(), part(), part(), part());
        let parameters: Vec<(&str, TypeSet)> = words(parameters)
            .map(|word| {
                let (name, set) = word.split_once('=').expect(INVALID_TABLE);
                (name, self.set(set))
            })
            .collect();
        let formals = |text| words(text).map(|word| self.formal(word, &parameters));
        OperatorSchema {
            min_inputs: usize::try_from(number(min_inputs)).expect(INVALID_TABLE),
            min_outputs: usize::try_from(number(min_outputs)).expect(INVALID_TABLE),
            inputs: formals(inputs).collect(),
            outputs: formals(outputs).collect(),
            attributes: words(attributes).map(AttributeSchema::read).collect(),
        }
    }

    fn formal(&self, word: &str, parameters: &[(&str, TypeSet)]) -> FormalParameter {
        let name = word.trim_end_matches(['?', '*', '+']);
        let option = match &word[name.len()..] {
            "" => Presence::Single,
            "?" => Presence::Optional,
            _ => Presence::Variadic,
        };
        if let Some(set) = name.strip_prefix('=') {
            let types = self.set(set);
            return FormalParameter {
                types,
                parameter: None,
                presence: option,
            };
        }
        let index = parameters.iter().position(|(known, _)| *known == name);
        let index = index.expect(INVALID_TABLE);
        FormalParameter {
            types: parameters[index].1,
            parameter: Some(index).filter(|_| !word.ends_with('+')),
            presence: option,
        }
    }

    fn set(&self, text: &str) -> TypeSet {
        self.sets[usize::try_from(number(text)).expect(INVALID_TABLE)]
    }

    /// Returns the set with the single type of this name; `None` if no operator uses it.
    pub(super) fn type_of(&self, name: &str) -> Option<TypeSet> {
        let index = self.types.iter().position(|known| *known == name)?;
        Some(1 << index)
    }

    /// Returns the name of the single type in `types`.
    pub(super) fn type_name(&self, types: TypeSet) -> &'static str {
        let index = usize::try_from(types.trailing_zeros()).unwrap_or(usize::MAX);
        self.types.get(index).copied().unwrap_or("another type")
    }
}

impl AttributeSchema {
    fn read(word: &'static str) -> Self {
        let (name, kind) = word.rsplit_once(':').expect(INVALID_TABLE);
        let bare = kind.trim_end_matches('!');
        Self {
            name,
            kind: u8::try_from(number(bare)).expect(INVALID_TABLE),
            required: bare != kind,
        }
    }
}

impl OperatorSchema {
    /// Returns the maximum number of inputs or outputs that `formals` allow; `None` without a
    /// limit.
    pub(super) fn most(formals: &[FormalParameter]) -> Option<usize> {
        let is_open = formals
            .last()
            .is_some_and(|last| last.presence == Presence::Variadic);
        (!is_open).then_some(formals.len())
    }

    /// Returns the schema of the input or output at `position`.
    pub(super) fn formal(formals: &[FormalParameter], position: usize) -> Option<&FormalParameter> {
        let last = formals
            .last()
            .filter(|last| last.presence == Presence::Variadic);
        formals.get(position).or(last)
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

fn number(text: &str) -> i64 {
    text.parse().expect(INVALID_TABLE)
}

#[cfg(test)]
mod tests {
    use super::{OperatorLookup, OperatorSchema, Operators, Presence};

    #[test]
    fn every_line_reads() {
        let table = Operators::get();
        let mut schemas = 0;
        for domain in table.domains.values() {
            for (operator, versions) in &domain.operators {
                for (since, _) in versions {
                    match table.entry(domain, operator, *since) {
                        OperatorLookup::Known(_) => schemas += 1,
                        OperatorLookup::Deprecated(at) => assert_eq!(at, *since),
                        OperatorLookup::Unknown => panic!("{operator} is listed"),
                    }
                }
            }
        }
        assert!(schemas > 700, "{schemas}");
    }

    #[test]
    fn versions_differ() {
        let table = Operators::get();
        let domain = table.domain("ai.onnx").expect("the standard");
        let OperatorLookup::Known(clip) = table.entry(domain, "Clip", 18) else {
            panic!("Clip is an operator");
        };
        assert_eq!(OperatorSchema::most(&clip.inputs), Some(3));
        assert_eq!(clip.inputs[1].presence, Presence::Optional);
        assert!(clip.attributes.is_empty());
        let OperatorLookup::Known(clip) = table.entry(domain, "Clip", 6) else {
            panic!("Clip is an operator");
        };
        assert_eq!(clip.attributes.len(), 2);
        assert!(matches!(
            table.entry(domain, "Clip", 0),
            OperatorLookup::Unknown
        ));
        assert!(matches!(
            table.entry(domain, "Upsample", 18),
            OperatorLookup::Deprecated(10)
        ));
    }
}
