//! Synonyms for the values that the format allows, as frameworks, model hubs and people use them.

use pkgtool_base::source::suggest;

/// Words and the allowed values that each may stand for.
const SYNONYMS: &[(&str, &[&str])] = &[
    // Element types, as named in PyTorch, NumPy and C.
    ("float", &["float32"]),
    ("single", &["float32"]),
    ("fp32", &["float32"]),
    ("f32", &["float32"]),
    ("half", &["float16"]),
    ("fp16", &["float16"]),
    ("f16", &["float16"]),
    ("bf16", &["bfloat16"]),
    ("double", &["float64"]),
    ("fp64", &["float64"]),
    ("f64", &["float64"]),
    ("byte", &["uint8"]),
    ("u8", &["uint8"]),
    ("char", &["int8"]),
    ("i8", &["int8"]),
    ("short", &["int16"]),
    ("i16", &["int16"]),
    ("int", &["int32"]),
    ("i32", &["int32"]),
    ("long", &["int64"]),
    ("i64", &["int64"]),
    ("boolean", &["bool"]),
    // Backends.
    ("cpu", &["xnnpack"]),
    ("apple", &["coreml", "mlx"]),
    ("ane", &["coreml"]),
    ("qualcomm", &["qnn"]),
    ("htp", &["qnn"]),
    ("hexagon", &["qnn"]),
    ("gpu", &["vulkan"]),
    ("metal", &["mlx", "coreml"]),
    // Capabilities, by the task names of model hubs.
    ("llm", &["text-generation"]),
    ("chat", &["text-generation"]),
    ("conversational", &["text-generation"]),
    ("causal-lm", &["text-generation"]),
    ("text2text-generation", &["text-generation"]),
    ("image-text-to-text", &["text-generation", "vision"]),
    ("multimodal", &["text-generation", "vision"]),
    ("visual-question-answering", &["text-generation", "vision"]),
    (
        "image-to-text",
        &["text-recognition", "vision", "text-generation"],
    ),
    ("text-to-audio", &["text-to-speech"]),
    ("text-classification", &["classification"]),
    ("token-classification", &["classification"]),
    ("audio-classification", &["classification"]),
    (
        "zero-shot-image-classification",
        &["classification", "image-embedding", "text-embedding"],
    ),
    ("zero-shot-object-detection", &["object-detection"]),
    ("image-feature-extraction", &["image-embedding"]),
    (
        "mask-generation",
        &["instance-segmentation", "semantic-segmentation"],
    ),
    ("image-to-image", &["style-transfer", "image-generation"]),
    ("asr", &["speech-to-text"]),
    ("stt", &["speech-to-text"]),
    ("transcription", &["speech-to-text"]),
    ("automatic-speech-recognition", &["speech-to-text"]),
    ("tts", &["text-to-speech"]),
    ("speech-synthesis", &["text-to-speech"]),
    ("image-classification", &["classification"]),
    ("detection", &["object-detection", "text-detection"]),
    (
        "segmentation",
        &["semantic-segmentation", "instance-segmentation"],
    ),
    (
        "image-segmentation",
        &["semantic-segmentation", "instance-segmentation"],
    ),
    ("embedding", &["text-embedding", "image-embedding"]),
    ("embeddings", &["text-embedding", "image-embedding"]),
    ("sentence-similarity", &["text-embedding"]),
    ("feature-extraction", &["text-embedding", "image-embedding"]),
    ("text-to-image", &["image-generation"]),
    ("diffusion", &["image-generation"]),
    ("vad", &["voice-activity-detection"]),
    ("ocr", &["text-recognition", "text-detection"]),
];

/// Returns the allowed values that a word stands for: itself, or those it is a synonym of.
pub(super) fn known<'o>(word: &str, options: &[&'o str]) -> Vec<&'o str> {
    let find = |value: &str| options.iter().copied().find(|option| *option == value);
    if let Some(same) = find(word) {
        return vec![same];
    }
    let known = SYNONYMS.iter().find(|(synonym, _)| *synonym == word);
    let values = known.into_iter().flat_map(|(_, values)| values.iter());
    values.filter_map(|value| find(value)).collect()
}

/// Returns the allowed values that a word most likely stands for: none, one or several.
pub(super) fn meant<'o>(word: &str, options: &[&'o str]) -> Vec<&'o str> {
    // In `torch.float32` and `ET_FLOAT32`, the last word counts.
    let last = word.rsplit('.').next().unwrap_or_default();
    let plain: String = last.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    let same = options
        .iter()
        .copied()
        .find(|option| plain_letters(option) == plain_letters(&plain));
    if let Some(same) = same.filter(|_| !plain.is_empty()) {
        return vec![same];
    }
    let known = known(&plain, options);
    if !known.is_empty() {
        return known;
    }
    suggest::nearest(&plain, options.iter().copied())
        .into_iter()
        .collect()
}

fn plain_letters(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn other_names_are_known() {
        let dtypes = ["int8", "int64", "float16", "float32"];
        assert_eq!(meant("torch.float32", &dtypes), ["float32"]);
        assert_eq!(meant("Float32", &dtypes), ["float32"]);
        assert_eq!(meant("half", &dtypes), ["float16"]);
        assert_eq!(meant("cpu", &dtypes), Vec::<&str>::new(), "no dtype");
        let can = [
            "text-generation",
            "semantic-segmentation",
            "instance-segmentation",
        ];
        assert_eq!(meant("text_generation", &can), ["text-generation"]);
        assert_eq!(
            meant("segmentation", &can),
            ["semantic-segmentation", "instance-segmentation"]
        );
        assert_eq!(meant("", &can), Vec::<&str>::new());
    }
}
