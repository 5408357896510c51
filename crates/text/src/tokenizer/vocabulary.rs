//! The bytes that each token stands for, used by constraints that select tokens by their text.
//!
//! Invariant: the concatenated bytes of tokens are the text that the tokenizer decodes. Exceptions
//! are a dropped space at the very beginning, and invalid UTF-8. A control token has the bytes of
//! its name.

use std::collections::HashMap;

use serde_json::Value;

/// The bytes of each token id, and the set of control tokens.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The bytes of all tokens, in the order of ids.
    bytes: Vec<u8>,
    /// Start offset of each id's bytes, with one end offset more.
    starts: Vec<u32>,
    /// True if the id exists, since a token may have no bytes.
    known: Vec<bool>,
    special: Vec<bool>,
    special_ids: HashMap<String, u32>,
}

impl Vocabulary {
    /// Builds a vocabulary from tokens with their ids and a control flag. The loader limits the
    /// ids.
    pub(super) fn of(
        tokens: impl Iterator<Item = (String, u32, bool)>,
        spelling: &ByteSpelling,
    ) -> Self {
        let mut tokens: Vec<(String, u32, bool)> = tokens.collect();
        tokens.sort_by_key(|(_, id, _)| *id);
        let len = tokens.last().map_or(0, |(_, id, _)| *id as usize + 1);
        let mut this = Self {
            bytes: Vec::new(),
            starts: Vec::with_capacity(len + 1),
            known: vec![false; len],
            special: vec![false; len],
            special_ids: HashMap::new(),
        };
        for (token, id, special) in tokens {
            let id = id as usize;
            // If two texts share an id, the first wins, as in decoding.
            if std::mem::replace(&mut this.known[id], true) {
                continue;
            }
            this.starts.resize(id + 1, this.end());
            this.bytes.extend(spelling.bytes(&token));
            this.special[id] = special;
            if special {
                this.special_ids
                    .insert(token, u32::try_from(id).unwrap_or(u32::MAX));
            }
        }
        this.starts.push(this.end());
        this
    }

    fn end(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("the size of the file is limited")
    }

    /// Returns the highest id plus one.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the bytes of a token; `None` if the id does not exist.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        if !*self.known.get(id)? {
            return None;
        }
        Some(&self.bytes[self.starts[id] as usize..self.starts[id + 1] as usize])
    }

    /// Returns whether the token is a control token, not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns the id of a control token by its text.
    pub fn id_of_special(&self, text: &str) -> Option<u32> {
        self.special_ids.get(text).copied()
    }

    /// Iterates over the texts and ids of control tokens, in no particular order.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.special_ids
            .iter()
            .map(|(text, id)| (text.as_str(), *id))
    }
}

/// The byte spelling that a tokenizer's decoder uses in tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ByteSpelling {
    /// True if tokens use GPT-2's letters, one for each byte.
    byte_letters: bool,
    /// True if tokens spell a byte as `<0x0A>`.
    byte_names: bool,
    /// Replacements that the decoder makes, in order.
    replaced: Vec<(String, String)>,
    /// Prefix of tokens that continue a word; other tokens begin with a space.
    continuing: Option<String>,
    /// True if text is exactly the concatenated bytes of its tokens.
    exact: bool,
}

impl ByteSpelling {
    /// Reads the decoder's JSON as the library writes it. Without a decoder, tokens stand for
    /// themselves.
    pub(super) fn of(decoder: Option<&Value>) -> Self {
        let mut this = Self::default();
        if let Some(decoder) = decoder {
            this.read(decoder);
            this.exact = this.byte_letters && is_exact(decoder);
        }
        this
    }

    /// Returns whether the text of tokens is always the concatenation of their bytes.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    fn read(&mut self, decoder: &Value) {
        let text = |key: &str| decoder.get(key).and_then(Value::as_str);
        match kind(decoder) {
            "ByteLevel" => self.byte_letters = true,
            "ByteFallback" => self.byte_names = true,
            "Metaspace" => {
                let space = text("replacement").unwrap_or("\u{2581}");
                self.replaced.push((space.to_owned(), " ".to_owned()));
            }
            "Replace" => {
                let pattern = decoder
                    .get("pattern")
                    .and_then(|pattern| pattern.get("String"));
                if let (Some(pattern), Some(content)) =
                    (pattern.and_then(Value::as_str), text("content"))
                    && !pattern.is_empty()
                {
                    self.replaced.push((pattern.to_owned(), content.to_owned()));
                }
            }
            "WordPiece" => self.continuing = Some(text("prefix").unwrap_or("##").to_owned()),
            "BPEDecoder" => {
                let suffix = text("suffix").unwrap_or("</w>");
                if !suffix.is_empty() {
                    self.replaced.push((suffix.to_owned(), " ".to_owned()));
                }
            }
            "Sequence" => {
                let decoders = decoder.get("decoders").and_then(Value::as_array);
                decoders
                    .into_iter()
                    .flatten()
                    .for_each(|decoder| self.read(decoder));
            }
            _ => {}
        }
    }

    /// Returns the bytes of a token.
    fn bytes(&self, token: &str) -> Vec<u8> {
        if self.byte_letters {
            let letters: Option<Vec<u8>> = token.chars().map(byte_of_letter).collect();
            return letters.unwrap_or_else(|| token.as_bytes().to_vec());
        }
        if self.byte_names
            && let Some(byte) = byte_of_name(token)
        {
            return vec![byte];
        }
        let mut text = token.to_owned();
        for (pattern, content) in &self.replaced {
            text = text.replace(pattern, content);
        }
        if let Some(prefix) = &self.continuing {
            text = match text.strip_prefix(prefix) {
                Some(rest) => rest.to_owned(),
                None => format!(" {text}"),
            };
        }
        text.into_bytes()
    }
}

fn kind(decoder: &Value) -> &str {
    decoder.get("type").and_then(Value::as_str).unwrap_or("")
}

/// Returns whether a decoder is the plain byte decoder, or a sequence of it and decoders without
/// effect.
fn is_exact(decoder: &Value) -> bool {
    match kind(decoder) {
        "ByteLevel" | "Fuse" => true,
        "Sequence" => {
            let decoders = decoder.get("decoders").and_then(Value::as_array);
            decoders.is_some_and(|decoders| decoders.iter().all(is_exact))
        }
        _ => false,
    }
}

/// Parses `<0x0A>`, SentencePiece's name of a byte. The library accepts digits of either case.
fn byte_of_name(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|c| c.is_ascii_hexdigit());
    if is_hex {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// Returns the byte of one of GPT-2's letters. Printable characters stand for themselves; the 68
/// other bytes are mapped to the letters from U+0100 on, in order.
fn byte_of_letter(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    let prints = |code: u32| matches!(code, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if prints(code) {
        return u8::try_from(code).ok();
    }
    let place = usize::try_from(code.checked_sub(0x100)?).ok()?;
    (0..=u8::MAX)
        .filter(|byte| !prints(u32::from(*byte)))
        .nth(place)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn letters_stand_for_bytes() {
        let all = (0..=u8::MAX).map(|byte| {
            let letters = ('\u{21}'..='\u{200}').filter(|c| byte_of_letter(*c) == Some(byte));
            letters.count()
        });
        assert!(
            all.into_iter().all(|letters| letters == 1),
            "one letter a byte"
        );
        assert_eq!(byte_of_letter('Ġ'), Some(b' '));
        assert_eq!(byte_of_letter('Ċ'), Some(b'\n'));
        assert_eq!(byte_of_letter('Ń'), Some(0xad), "the last of the 68");
        assert_eq!(byte_of_letter('ń'), None);
        assert_eq!(byte_of_letter(' '), None);
    }

    #[test]
    fn tokens_are_spelled_as_their_decoder_does() {
        let bytes = |decoder: Option<Value>, token| {
            let bytes = ByteSpelling::of(decoder.as_ref()).bytes(token);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let letters = json!({"type": "ByteLevel"});
        assert_eq!(bytes(Some(letters.clone()), "ĠcafÃ©"), " café");
        assert_eq!(bytes(Some(letters), "<two words>"), "<two words>");
        let pieces = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        assert_eq!(bytes(Some(pieces.clone()), "▁a▁b"), " a b");
        assert_eq!(bytes(Some(pieces.clone()), "<0x0A>"), "\n");
        assert_eq!(bytes(Some(pieces), "<0x+A>"), "<0x+A>");
        let words = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
        assert_eq!(bytes(Some(words.clone()), "##ing"), "ing");
        assert_eq!(bytes(Some(words), "go"), " go");
        assert_eq!(
            bytes(
                Some(json!({"type": "BPEDecoder", "suffix": "</w>"})),
                "go</w>"
            ),
            "go "
        );
        assert_eq!(bytes(None, "▁go"), "▁go");
    }

    #[test]
    fn gaps_between_ids_are_no_tokens() {
        let tokens = [
            ("b", 3, false),
            ("<s>", 1, true),
            ("", 4, false),
            ("x", 3, true),
        ];
        let tokens = tokens
            .into_iter()
            .map(|(text, id, special)| (text.to_owned(), id, special));
        let vocabulary = Vocabulary::of(tokens, &ByteSpelling::default());
        assert_eq!(vocabulary.len(), 5);
        assert_eq!(vocabulary.bytes(0), None);
        assert_eq!(vocabulary.bytes(1), Some(&b"<s>"[..]));
        assert_eq!(vocabulary.bytes(2), None);
        assert_eq!(vocabulary.bytes(3), Some(&b"b"[..]));
        assert_eq!(vocabulary.bytes(4), Some(&b""[..]));
        assert_eq!(vocabulary.bytes(5), None);
        assert!(vocabulary.is_special(1) && !vocabulary.is_special(3) && !vocabulary.is_special(9));
        assert_eq!(vocabulary.id_of_special("<s>"), Some(1));
        assert_eq!(vocabulary.id_of_special("b"), None);
    }
}
