//! A member's key as a step of a path.
//!
//! Invariant: keys are cheap, because paths are created by the thousand. A short key, as nearly
//! every key is, needs no allocation. Clones of a long key share its text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use compact_str::CompactString;

/// Maximum length of a key that is stored inline, in bytes.
const MAX_INLINE_BYTES: usize = 24;

/// A key, compared, ordered and hashed as its text.
#[derive(Clone)]
pub struct Key(KeyText);

#[derive(Clone)]
enum KeyText {
    Short(CompactString),
    Long(Arc<str>),
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(if text.len() <= MAX_INLINE_BYTES {
            KeyText::Short(text.into())
        } else {
            KeyText::Long(text.into())
        })
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            KeyText::Short(text) => text,
            KeyText::Long(text) => text,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, MAX_INLINE_BYTES};

    #[test]
    fn a_key_is_its_text_at_every_length() {
        let texts: Vec<String> = (0..2 * MAX_INLINE_BYTES)
            .map(|length| "k".repeat(length))
            .collect();
        for one in &texts {
            assert_eq!(&*Key::from(one.as_str()), one);
            for other in &texts {
                let keys = [one, other].map(|text| Key::from(text.as_str()));
                assert_eq!(keys[0] == keys[1], one == other);
                assert_eq!(keys[0].cmp(&keys[1]), one.cmp(other));
            }
        }
        assert_eq!(size_of::<Key>(), MAX_INLINE_BYTES);
    }
}
