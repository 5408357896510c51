//! Inspects tokenizer files: whether they are valid JSON, and whether they are a tokenizer or a
//! tokenizer configuration.
//!
//! Invariant: a file is read as a stream and validated completely. Only the presence of a few root
//! keys is kept, and how much the normalizer can make texts grow.

use std::fmt;
use std::io::Read;
use std::io::{self, BufReader};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use pkgtool_base::source::{self, elsewhere};

/// Maximum size of a JSON file that is checked, in bytes. The largest tokenizers have some tens of
/// MB.
const MAX_JSON: u64 = 512 * 1024 * 1024;

/// Maximum size of a remote file that is downloaded for the check, in bytes. Larger ones are not
/// checked.
const MAX_REMOTE_BYTES: u64 = 256 * 1024;

/// Keys found only in a tokenizer as the `tokenizers` library writes it.
const TOKENIZER_KEYS: [&str; 4] = ["model", "pre_tokenizer", "post_processor", "decoder"];
/// Keys found only in a tokenizer configuration as `transformers` writes it.
const TOKENIZER_CONFIG_KEYS: [&str; 5] = [
    "tokenizer_class",
    "model_max_length",
    "added_tokens_decoder",
    "chat_template",
    "clean_up_tokenization_spaces",
];

/// The key of the normalizer, which rewrites a text before it is split.
const NORMALIZER: &str = "normalizer";

/// Maximum number of characters that a sound tokenizer's normalizer produces from one character.
const MAX_GROWTH: f64 = 1000.0;

/// Facts derived from the root keys of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RootKeys {
    tokenizer: bool,
    config: bool,
    /// Number of characters that the normalizer can produce from one character; 0 if unknown.
    growth: f64,
}

impl RootKeys {
    /// Returns whether the file is a tokenizer and not a tokenizer configuration.
    pub(super) fn is_tokenizer(self) -> bool {
        self.tokenizer && !self.config
    }

    /// Returns the growth factor of the normalizer if it exceeds that of any sound tokenizer.
    pub(super) fn excessive_growth(self) -> Option<f64> {
        (self.growth > MAX_GROWTH).then_some(self.growth)
    }

    /// Returns whether the file is a tokenizer configuration and not a tokenizer.
    pub(super) fn is_config(self) -> bool {
        self.config && !self.tokenizer
    }
}

/// Reads the keys at the root and skips their values.
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
            self.0.tokenizer |= TOKENIZER_KEYS.contains(&key.as_str());
            self.0.config |= TOKENIZER_CONFIG_KEYS.contains(&key.as_str());
            if key == NORMALIZER {
                self.0.growth = map.next_value::<Growth>()?.0;
            } else {
                map.next_value::<AnyJson>()?;
            }
        }
        Ok(())
    }
}

/// Number of characters that a normalizer's replacements can produce from one character. Unknown
/// forms count as one.
struct Growth(f64);

impl<'de> Deserialize<'de> for Growth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Normalizer).map(Self)
    }
}

/// Reads a normalizer, or a sequence of them, whose growth factors multiply.
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

    /// Returns the length of a text: `content`, or the `String` of a `pattern`.
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
                // A regular expression may match a single character.
                "pattern" => pattern = map.next_value::<Growth>()?.0,
                _ => {
                    map.next_value::<AnyJson>()?;
                }
            }
        }
        Ok(f64::max(list, content / pattern.max(1.0)))
    }
}

/// Reads the root keys of the JSON file at `path`.
pub(super) fn read(path: &Path) -> io::Result<RootKeys> {
    let file = source::open(path)?;
    let size = file.size()?;
    if size > MAX_REMOTE_BYTES && elsewhere::is_remote(path) {
        return Ok(RootKeys::default());
    }
    if size > MAX_JSON {
        return Err(io::Error::other(format!(
            "file too large: {size} bytes (limit {MAX_JSON})"
        )));
    }
    let mut keys = RootKeys::default();
    let mut reader = serde_json::Deserializer::from_reader(BufReader::new(file.take(MAX_JSON)));
    reader.deserialize_any(Root(&mut keys))?;
    reader.end()?;
    Ok(keys)
}

/// Maximum number of bytes read to detect the actual content of an invalid JSON file.
const MAX_CAUSE_BYTES: u64 = 16 * 1024 * 1024;

/// The reason why a tokenizer file is invalid JSON, and the remedy.
#[derive(Debug)]
pub(super) struct InvalidJson {
    /// Completes the message `is not JSON: …`.
    pub(super) message: String,
    /// The remedy.
    pub(super) help: String,
}

/// Explains why a file does not parse. Its content often explains it better than the parser's
/// error.
pub(super) fn cause(path: &Path, error: &io::Error) -> InvalidJson {
    let again = "download or export the tokenizer again";
    let mut bytes = Vec::new();
    let is_near = !elsewhere::is_remote(path);
    let opened = is_near.then(|| source::open(path).ok()).flatten();
    let read = opened.map(|file| file.take(MAX_CAUSE_BYTES).read_to_end(&mut bytes));
    let is_text = matches!(read, Some(Ok(_)));
    if is_text && bytes.starts_with(b"\xef\xbb\xbf") {
        return InvalidJson {
            message: "it begins with a byte order mark".to_owned(),
            help: "save it as UTF-8 without a byte order mark".to_owned(),
        };
    }
    let text = String::from_utf8_lossy(&bytes);
    match source::detect_cause(&text).filter(|_| is_text) {
        Some(named) => {
            let line = text[..named.span.start].matches('\n').count() + 1;
            let mut message = named.message;
            message.replace_range(..1, &message[..1].to_lowercase());
            InvalidJson {
                message: format!("{message} (line {line})"),
                help: named.help.into_owned(),
            }
        }
        None => InvalidJson {
            message: error.to_string(),
            help: again.to_owned(),
        },
    }
}

/// Any JSON value, parsed and discarded. `IgnoredAny` would not detect invalid UTF-8, because it
/// skips strings unread.
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
