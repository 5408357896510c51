//! Detects how a model writes tool calls, from the chat template that teaches it the format.

/// A format of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFamily {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen 2.5 and 3, `SmolLM3`.
    Hermes,
    /// `<tool_call><function=…><parameter=…>…`: Qwen3-Coder, Qwen 3.5, `MiniCPM5`.
    Xml,
    /// `{"name": …, "parameters": …}` alone, or after `<|python_tag|>`: Llama 3.
    Llama,
    /// `[TOOL_CALLS][{…}]`, later `[TOOL_CALLS]name[ARGS]{…}`: Mistral.
    Mistral,
    /// `<|tool_call|>[{…}]<|/tool_call|>` or `functools[{…}]`: Phi 4.
    Phi,
    /// `<|tool_call|>[{…}]` or `<tool_call>…`: Granite.
    Granite,
    /// `<|tool_call_start|>[f(x=1)]<|tool_call_end|>`: LFM 2.
    Lfm,
    /// Python calls in a code fence: Gemma.
    Gemma,
    /// Harmony channels: gpt-oss.
    Harmony,
    /// A JSON list of calls and nothing else, as a constraint requires.
    Required,
}

impl CallFamily {
    /// Detects the family from a template's text. The default is the most common format.
    pub fn of(template: &str) -> Self {
        let has = |mark: &str| template.contains(mark);
        if has("<|channel|>") && has("<|message|>") {
            Self::Harmony
        } else if has("<|tool_call_start|>") || has("<|tool_list_start|>") {
            Self::Lfm
        } else if has("[TOOL_CALLS]") {
            Self::Mistral
        } else if has("<|/tool_call|>") || has("functools[") || has("<|/tool|>") {
            Self::Phi
        } else if has("<|tool_call|>") || has("<|start_of_role|>") {
            Self::Granite
        } else if has("<function=") || has("<parameter=") {
            Self::Xml
        } else if has("<tool_call>") {
            Self::Hermes
        } else if has("<|python_tag|>") || has("<|start_header_id|>") {
            Self::Llama
        } else if has("<start_of_turn>") {
            Self::Gemma
        } else {
            Self::Hermes
        }
    }
}
