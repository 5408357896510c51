//! Size limits of a request.

/// Size limits of a request. Each is checked before the limited part is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Size of the request body, in bytes.
    pub bytes: usize,
    /// Number of JSON values, nested ones included.
    pub values: usize,
    /// Number of messages.
    pub messages: usize,
    /// Number of parts in a message, and of tool calls in it.
    pub parts: usize,
    /// Number of pictures in all messages.
    pub pictures: usize,
    /// Number of tools.
    pub tools: usize,
    /// Number of choices, which are answers to one prompt.
    pub choices: u32,
    /// Number of prompts in a text completion.
    pub prompts: usize,
    /// Number of tokens in an answer, which the model's context limits as well.
    pub max_tokens: u32,
}

impl Default for RequestLimits {
    /// Returns limits far above usual requests. The number of tokens has no limit of its own.
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            values: 1_000_000,
            messages: 4096,
            parts: 256,
            pictures: 16,
            tools: 128,
            choices: 128,
            prompts: 1024,
            max_tokens: u32::MAX,
        }
    }
}
