//! Model cards: reads the front matter of a hub repository's `README.md`.
//!
//! Invariant: only the beginning of the file is read, and only unindented keys with plain or quoted
//! values, or lists of them, all of bounded length. Other YAML is skipped. A full YAML parser would
//! be the largest dependency of validation, for four keys.

use std::io::Read;
use std::path::Path;

use crate::source;

/// The file name of a model card.
pub const FILE_NAME: &str = "README.md";

/// Maximum number of bytes read from a card.
const MAX_READ_BYTES: u64 = 64 * 1024;
/// Maximum length of a stored value, in bytes.
const MAX_VALUE_BYTES: usize = 100;
/// Maximum number of values in a list.
const MAX_VALUES: usize = 100;

/// The fields of a model card; missing ones are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// `license`; if it is `other`, the value of `license_name`, as hubs write it.
    pub license: Option<String>,
    /// `pipeline_tag`: the hub's name for the task.
    pub pipeline_tag: Option<String>,
    /// `tags`.
    pub tags: Vec<String>,
    /// `base_model`: the repositories from which the model was derived.
    pub base_models: Vec<String>,
}

impl Card {
    /// Reads the card at `path`; `None` if it does not exist or has no front matter.
    pub fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = source::open(path).ok()?;
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the text of a card; `None` without front matter, which begins and ends with `---`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().peekable();
        if lines.next()?.trim_end() != "---" {
            return None;
        }
        let mut card = Self::default();
        let mut name = None;
        while let Some(line) = lines.next() {
            if line.trim_end() == "---" {
                if card.license.as_deref() == Some("other") && name.is_some() {
                    card.license = name;
                }
                return Some(card);
            }
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            if ![
                "license",
                "license_name",
                "pipeline_tag",
                "tags",
                "base_model",
            ]
            .contains(&key)
            {
                continue;
            }
            let mut elements = Vec::new();
            while let Some(line) = lines.next_if(|line| line.trim_start().starts_with("- ")) {
                elements.extend(line.trim_start().strip_prefix("- "));
            }
            let values = values(value, &elements);
            match key {
                "license" => card.license = only(values),
                "license_name" => name = only(values),
                "pipeline_tag" => card.pipeline_tag = only(values),
                "tags" => card.tags = values,
                _ => card.base_models = values,
            }
        }
        None
    }
}

/// Returns the values of a key: the elements of a list below it or on its line, else its single
/// value.
fn values(value: &str, below: &[&str]) -> Vec<String> {
    let value = uncommented(value);
    let inner = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let all: Vec<&str> = match (value, inner) {
        ("", _) => below.to_vec(),
        // Both a value and a list: ambiguous.
        _ if !below.is_empty() => Vec::new(),
        (_, Some(inner)) => inner.split(',').collect(),
        (value, None) => vec![value],
    };
    all.into_iter()
        .take(MAX_VALUES)
        .filter_map(scalar)
        .map(str::to_owned)
        .collect()
}

fn only(values: Vec<String>) -> Option<String> {
    let [only] = <[String; 1]>::try_from(values).ok()?;
    Some(only)
}

fn uncommented(value: &str) -> &str {
    value.split(" #").next().unwrap_or_default().trim()
}

/// Returns a plain or quoted value; lists and blocks are not supported.
fn scalar(value: &str) -> Option<&str> {
    let value = uncommented(value);
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let is_plain =
        !value.is_empty() && !value.starts_with(['[', '{', '|', '>', '&', '*', '!', '#']);
    (is_plain && value.len() <= MAX_VALUE_BYTES).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::Card;

    fn of_card(text: &str) -> Option<String> {
        Card::parse(text)?.license
    }

    #[test]
    fn a_card_says_task_and_base() {
        let text = "---\nbase_model:\n- a/Llama-3.2-1B\n- b/c\npipeline_tag: text-generation\ntags: [x, 'y']\n---\n";
        let card = Card::parse(text).expect("front matter");
        assert_eq!(card.base_models, ["a/Llama-3.2-1B", "b/c"]);
        assert_eq!(card.pipeline_tag.as_deref(), Some("text-generation"));
        assert_eq!(card.tags, ["x", "y"]);
        let nested = "---\nmodel-index:\n- name: x\n  license: mit\nbase_model: &a b\n---\n";
        assert_eq!(Card::parse(nested), Some(Card::default()));
    }

    #[test]
    fn model_cards_say_their_licence() {
        let of = |text: &str| of_card(text);
        let card = "---\r\ntags: [a]\r\nlicense: apache-2.0 # kept\r\n---\r\n# Model\r\n";
        assert_eq!(of(card).as_deref(), Some("apache-2.0"));
        let other = "---\nlicense_name: \"llama-3.2-community\"\nlicense: other\n---\n";
        assert_eq!(of(other).as_deref(), Some("llama-3.2-community"));
        assert_eq!(of("---\nlicense: other\n---\n").as_deref(), Some("other"));
        for none in [
            "",
            "# Model\nlicense: mit\n",
            "---\nlicense: mit\n",
            "---\nlicense:\n---\n",
            "---\nlicense: [mit, isc]\n---\n",
            "---\nlicense_link: mit\n---\n",
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_list_of_one_licence_is_that_licence() {
        for card in [
            "---\nlicense: [mit]\n---\n",
            "---\nlicense: [ 'mit' ] # kept\n---\n",
            "---\nlicense:\n- mit\ntags:\n- isc\n---\n",
            "---\nlicense:\n  - \"mit\" # kept\n---\n",
        ] {
            assert_eq!(of_card(card).as_deref(), Some("mit"), "{card:?}");
        }
        for none in [
            "---\nlicense:\n- mit\n- isc\n---\n",
            "---\nlicense: []\n---\n",
        ] {
            assert_eq!(of_card(none), None, "{none:?}");
        }
    }
}
