//! Stands in for the phonemes of English texts in builds without them.

/// Refuses a text.
pub fn english(_: &str) -> Result<String, String> {
    Err(
        "this build has no phonemes for English texts (feature `english`): give phonemes (IPA)"
            .to_owned(),
    )
}
