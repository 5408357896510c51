//! Tokenizer files: whether they are JSON, and which of the two kinds they are.
//!
//! Invariant: a file is read as a stream and checked whole; of its content only the presence of a
//! few keys at its root is kept, and how much its normaliser makes texts grow.

use std::fmt;
use std::io::Read;
use std::io::{self, BufReader};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::source::{self, elsewhere};

/// Longest JSON file that is checked, in bytes; the largest tokenizers have some tens of MB.
const MAX_JSON: u64 = 512 * 1024 * 1024;

/// Longest one that is fetched to be checked, where its bytes are elsewhere. Nothing is said of longer ones.
const MAX_FAR: u64 = 256 * 1024;

/// Keys that only a tokenizer has, as the `tokenizers` library writes it.
const OF_TOKENIZER: [&str; 4] = ["model", "pre_tokenizer", "post_processor", "decoder"];
/// Keys that only a tokenizer's configuration has, as `transformers` writes it.
const OF_CONFIG: [&str; 5] = [
    "tokenizer_class",
    "model_max_length",
    "added_tokens_decoder",
    "chat_template",
    "clean_up_tokenization_spaces",
];

/// The key of what changes texts before they are split.
const NORMALIZER: &str = "normalizer";

/// Most characters that a sound tokenizer's replacements make of one.
const MOST_GROWTH: f64 = 1000.0;

/// What the keys at a file's root tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RootKeys {
    tokenizer: bool,
    config: bool,
    /// How many characters the normaliser's replacements can make of one; 0 where they are not known.
    growth: f64,
}

impl RootKeys {
    /// Whether this is a tokenizer and no configuration of one.
    pub(super) fn is_tokenizer(self) -> bool {
        self.tokenizer && !self.config
    }

    /// How many characters its replacements can make of one, if that is more than any sound tokenizer makes.
    pub(super) fn excessive_growth(self) -> Option<f64> {
        (self.growth > MOST_GROWTH).then_some(self.growth)
    }

    /// Whether this is a configuration and no tokenizer.
    pub(super) fn is_config(self) -> bool {
        self.config && !self.tokenizer
    }
}

/// Reads the root's keys; what they lead to is read and forgotten.
struct Root<'a>(&'a mut RootKeys);

impl<'de> Visitor<'de> for Root<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        AnyJson.visit_seq(seq).map(|_| ())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.tokenizer |= OF_TOKENIZER.contains(&key.as_str());
            self.0.config |= OF_CONFIG.contains(&key.as_str());
            if key == NORMALIZER {
                self.0.growth = map.next_value::<Growth>()?.0;
            } else {
                map.next_value::<AnyJson>()?;
            }
        }
        Ok(())
    }
}

/// How many characters the replacements of a normaliser can make of one. Whatever has another form counts as one.
struct Growth(f64);

impl<'de> Deserialize<'de> for Growth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Normalizer).map(Self)
    }
}

/// Reads a normaliser, or a list of them, whose growths multiply.
struct Normalizer;

impl<'de> Visitor<'de> for Normalizer {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<f64, E> {
        Ok(1.0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<f64, E> {
        Ok(1.0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<f64, E> {
        Ok(1.0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<f64, E> {
        Ok(1.0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<f64, E> {
        Ok(1.0)
    }

    /// A text's length: `content`, and the `String` of a `pattern`.
    fn visit_str<E>(self, text: &str) -> Result<f64, E> {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        Ok(text.chars().count() as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<f64, A::Error> {
        let mut growth = 1.0;
        while let Some(Growth(one)) = seq.next_element()? {
            growth *= one.max(1.0);
        }
        Ok(growth)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<f64, A::Error> {
        let (mut list, mut content, mut pattern) = (1.0, 0.0, 1.0);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "normalizers" | "String" => list = map.next_value::<Growth>()?.0,
                "content" => content = map.next_value::<Growth>()?.0,
                // An expression may match a single character.
                "pattern" => pattern = map.next_value::<Growth>()?.0,
                _ => {
                    map.next_value::<AnyJson>()?;
                }
            }
        }
        Ok(f64::max(list, content / pattern.max(1.0)))
    }
}

/// The keys at the root of the JSON file at `path`.
pub(super) fn read(path: &Path) -> io::Result<RootKeys> {
    let file = source::open(path)?;
    let size = file.size()?;
    if size > MAX_FAR && elsewhere::is_far(path) {
        return Ok(RootKeys::default());
    }
    if size > MAX_JSON {
        return Err(io::Error::other(format!(
            "{size} bytes are too many for a tokenizer file (limit {MAX_JSON})"
        )));
    }
    let mut keys = RootKeys::default();
    let mut reader = serde_json::Deserializer::from_reader(BufReader::new(file.take(MAX_JSON)));
    reader.deserialize_any(Root(&mut keys))?;
    reader.end()?;
    Ok(keys)
}

/// Most bytes of a file that are looked at to say what it is instead of JSON.
const MAX_LOOK: u64 = 16 * 1024 * 1024;

/// Why a tokenizer file is not JSON, and what to do.
#[derive(Debug)]
pub(super) struct NotJson {
    /// Goes on after `is not JSON: `.
    pub(super) message: String,
    /// What to do.
    pub(super) help: String,
}

/// What a file is that does not parse: its content says it better than a parser's error.
pub(super) fn cause(path: &Path, error: &io::Error) -> NotJson {
    let again = "fetch or export the tokenizer again";
    let mut bytes = Vec::new();
    let is_near = !elsewhere::is_far(path);
    let opened = is_near.then(|| source::open(path).ok()).flatten();
    let read = opened.map(|file| file.take(MAX_LOOK).read_to_end(&mut bytes));
    let is_text = matches!(read, Some(Ok(_)));
    if is_text && bytes.starts_with(b"\xef\xbb\xbf") {
        return NotJson {
            message: "it begins with a byte order mark".to_owned(),
            help: "save it as UTF-8 without a byte order mark".to_owned(),
        };
    }
    let text = String::from_utf8_lossy(&bytes);
    match source::cause(&text).filter(|_| is_text) {
        Some(named) => {
            let line = text[..named.span.start].matches('\n').count() + 1;
            let mut message = named.message;
            message.replace_range(..1, &message[..1].to_lowercase());
            NotJson {
                message: format!("{message} (line {line})"),
                help: named.help.into_owned(),
            }
        }
        None => NotJson {
            message: error.to_string(),
            help: again.to_owned(),
        },
    }
}

/// Any JSON value, read whole and forgotten. `IgnoredAny` would skip strings unread, and with them
/// bytes that are not UTF-8.
struct AnyJson;

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for AnyJson {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
