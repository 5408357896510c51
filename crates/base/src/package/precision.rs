//! The precision list: the known precision tokens, and whether each means quantized.

use crate::source::json::{Document, JsonPath, Node};

/// The built-in list, used if a repository has none of its own.
pub const DEFAULT_LIST: &str = include_str!("../../../../schemas/precisions.json");

/// The file name of a repository's own list.
pub const FILE_NAME: &str = "precisions.json";

/// The keys of the two arrays in a list file.
pub const GROUPS: [&str; 2] = ["quantized", "non_quantized"];

/// A precision list. Tokens are kept in file order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrecisionList {
    /// Tokens of quantized variants.
    pub quantized: Vec<String>,
    /// Tokens of all others.
    pub non_quantized: Vec<String>,
}

impl PrecisionList {
    /// Reads the strings in the two arrays and ignores everything else.
    pub fn from_document(document: &Document) -> Self {
        let tokens = |group| {
            let elements = document.root.get(group).map_or(&[][..], Node::elements);
            elements
                .iter()
                .filter_map(Node::as_str)
                .map(str::to_owned)
                .collect()
        };
        let [quantized, non_quantized] = GROUPS.map(tokens);
        Self {
            quantized,
            non_quantized,
        }
    }

    /// Returns the built-in list.
    ///
    /// # Panics
    /// Never: a test parses the same text.
    pub fn embedded() -> Self {
        let document = Document::parse(DEFAULT_LIST).expect("the embedded list is JSON");
        Self::from_document(&document)
    }

    /// Returns this list with the missing tokens of `extra` added.
    #[must_use]
    pub fn with(&self, extra: &Self) -> Self {
        let mut list = self.clone();
        let unknown = |token: &&String| !self.contains(token);
        list.quantized
            .extend(extra.quantized.iter().filter(unknown).cloned());
        let others = extra.non_quantized.iter().filter(unknown).cloned();
        list.non_quantized.extend(others);
        list
    }

    /// Returns all tokens, quantized ones first.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.quantized
            .iter()
            .chain(&self.non_quantized)
            .map(String::as_str)
    }

    /// Returns whether the token is in the list.
    pub fn contains(&self, token: &str) -> bool {
        self.tokens().any(|known| known == token)
    }

    /// Returns the tokens that are quantized in one list and not in the other.
    pub fn against<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        self.tokens().filter(|token| {
            let own = self.is_quantized(token);
            other.is_quantized(token).is_some_and(|is| Some(is) != own)
        })
    }

    /// Returns whether variants of this precision are quantized; `None` for a token that is not in
    /// the list.
    pub fn is_quantized(&self, token: &str) -> Option<bool> {
        if self.quantized.iter().any(|known| known == token) {
            Some(true)
        } else {
            self.non_quantized
                .iter()
                .any(|known| known == token)
                .then_some(false)
        }
    }
}

/// Returns the paths of the elements of `group` in a list document, with their tokens.
pub fn located_tokens<'a>(
    document: &'a Document,
    group: &'a str,
) -> impl Iterator<Item = (JsonPath, &'a str)> {
    let elements = document.root.get(group).map_or(&[][..], Node::elements);
    elements.iter().enumerate().filter_map(move |(i, element)| {
        Some((JsonPath::root().key(group).index(i), element.as_str()?))
    })
}
