//! How large a request may be.

/// Bounds of a request. They are held before anything is built of what they bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a request's text.
    pub bytes: usize,
    /// Values of a request, nested ones included.
    pub values: usize,
    /// Messages.
    pub messages: usize,
    /// Parts of a message, and calls of tools in it.
    pub parts: usize,
    /// Tools.
    pub tools: usize,
    /// Choices: answers to one prompt.
    pub choices: u32,
    /// Prompts of a text completion.
    pub prompts: usize,
    /// Tokens of an answer: what the model's context holds.
    pub max_tokens: u32,
}

impl Default for Bounds {
    /// Far above what people ask. The number of tokens is without a bound of its own.
    fn default() -> Self {
        Self {
            bytes: 8 << 20,
            values: 1_000_000,
            messages: 4096,
            parts: 256,
            tools: 128,
            choices: 128,
            prompts: 1024,
            max_tokens: u32::MAX,
        }
    }
}
