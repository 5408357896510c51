//! Proposes the capabilities of a model from its signature, its components and its name.
//!
//! A signature seldom proves a purpose, so most proposals are marked as guesses.

use std::collections::BTreeSet;

use pkgtool_base::package::{DType, naming};
use pkgtool_model::{Dim, ElementType, Method, ModelInfo, TensorInfo};

/// The capabilities of the format, in its order.
pub const CAPABILITIES: [&str; 15] = [
    "text-generation",
    "vision",
    "speech-to-text",
    "text-to-speech",
    "classification",
    "object-detection",
    "semantic-segmentation",
    "instance-segmentation",
    "style-transfer",
    "text-embedding",
    "image-embedding",
    "image-generation",
    "voice-activity-detection",
    "text-detection",
    "text-recognition",
];

/// Proposed capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The capabilities.
    pub(super) capabilities: Vec<&'static str>,
    /// The evidence for them.
    pub(super) evidence: String,
    /// True if they are only likely.
    pub(super) guess: bool,
}

/// A model of a variant and its component name.
pub(super) type VariantModel<'a> = (Option<&'a str>, &'a ModelInfo);

/// Words in model names, with the capabilities that they suggest.
const NAME_HINTS: [(&[&str], &[&str]); 13] = [
    (&["vad"], &["voice-activity-detection"]),
    (&["tts"], &["text-to-speech"]),
    (&["asr", "stt", "whisper"], &["speech-to-text"]),
    (&["ocr"], &["text-detection", "text-recognition"]),
    (&["clip", "siglip"], &["image-embedding", "text-embedding"]),
    (&["diffusion"], &["image-generation"]),
    (
        &["segmentation", "deeplab", "lraspp"],
        &["semantic-segmentation"],
    ),
    (&["yolo", "ssd", "ssdlite", "detr"], &["object-detection"]),
    (&["style"], &["style-transfer"]),
    (
        &[
            "embedding",
            "minilm",
            "mpnet",
            "bge",
            "gte",
            "e5",
            "sentence",
        ],
        &["text-embedding"],
    ),
    (
        &["mobilenet", "resnet", "efficientnet"],
        &["classification"],
    ),
    (
        &["llm", "llama", "qwen", "smollm", "gemma", "phi"],
        &["text-generation"],
    ),
    (&["sam", "yolact"], &["instance-segmentation"]),
];

/// Constant methods that exporters of language models write.
const LANGUAGE_MODEL_METHODS: [&str; 6] = [
    "get_eos_ids",
    "get_eos_id",
    "get_vocab_size",
    "use_kv_cache",
    "get_max_context_len",
    "get_n_layers",
];

/// The likely meaning of a tensor, by its dtype and shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TensorForm {
    /// Integers of rank 2: rows of token ids.
    Ids,
    /// Integers of rank 1: positions, lengths.
    Positions,
    /// Numbers of rank 4 with 1, 3 or 4 channels.
    Image,
    /// Other floats of rank 4.
    Maps,
    /// Floats of rank 3: frames, states.
    Frames,
    /// Floats of rank 2: a row of numbers for each item.
    Rows,
    Other,
}

/// Proposes capabilities for the models of one variant; `model` is the model token.
pub(super) fn propose(parts: &[VariantModel<'_>], model: &str) -> Option<Proposal> {
    of_components(parts)
        .or_else(|| of_language(parts))
        .or_else(|| of_speech(parts))
        .or_else(|| of_name(model))
        .or_else(|| parts.iter().find_map(|(_, info)| of_signature(main(info)?)))
}

fn of_components(parts: &[VariantModel<'_>]) -> Option<Proposal> {
    let names: BTreeSet<&str> = parts.iter().filter_map(|(name, _)| *name).collect();
    let has = |word: &str| names.iter().any(|name| naming::has_token(name, word));
    let sure = |capabilities: &[&'static str], evidence: &str| {
        Some(proposal(
            capabilities,
            format!("the components {evidence}"),
            false,
        ))
    };
    if has("unet") && (has("vae") || has("decoder")) {
        return sure(&["image-generation"], "`unet` and a decoder");
    }
    if has("text_encoder") && (has("image_encoder") || has("vision_encoder")) && names.len() == 2 {
        return sure(
            &["image-embedding", "text-embedding"],
            "`image_encoder` and `text_encoder`",
        );
    }
    if has("detector") && has("recognizer") {
        return sure(
            &["text-detection", "text-recognition"],
            "`detector` and `recognizer`",
        );
    }
    None
}

fn of_language(parts: &[VariantModel<'_>]) -> Option<Proposal> {
    parts.iter().find_map(|(_, info)| {
        let method = main(info)?;
        let (inputs, outputs) = (forms(&method.inputs), forms(&method.outputs));
        let constants = info.methods.iter().filter(|method| method.constant);
        let told = constants
            .map(|method| method.name.as_str())
            .find(|name| LANGUAGE_MODEL_METHODS.contains(name));
        let named = |side: &[pkgtool_model::ModelValue], part: &str| {
            let names = side.iter().filter_map(|value| value.name.clone());
            names
                .into_iter()
                .find(|name| name.to_lowercase().contains(part))
        };
        let past = named(&method.inputs, "past_key").or_else(|| named(&method.inputs, "cache"));
        let logits = named(&method.outputs, "logits");
        let embeds = named(&method.outputs, "hidden_state")
            .or_else(|| named(&method.outputs, "embed"))
            .or_else(|| named(&method.outputs, "pool"));
        // A speech decoder also takes ids, but together with the states of an encoder.
        let only_ids = inputs.first() == Some(&TensorForm::Ids)
            && inputs
                .iter()
                .all(|form| matches!(form, TensorForm::Ids | TensorForm::Positions))
            || past.is_some();
        if !only_ids {
            return None;
        }
        let text = &["text-generation"];
        if let Some(name) = told.filter(|_| outputs.first() != Some(&TensorForm::Other)) {
            return Some(proposal(
                text,
                format!("it takes token ids, and the file has `{name}`"),
                false,
            ));
        }
        if let Some(past) = past {
            return Some(proposal(
                text,
                format!("it keeps a cache (`{past}`)"),
                false,
            ));
        }
        if logits.is_some() && outputs.first() == Some(&TensorForm::Frames) {
            return Some(proposal(
                text,
                "it takes token ids and returns `logits` for each".to_owned(),
                false,
            ));
        }
        if inputs.contains(&TensorForm::Positions) && inputs.len() == 2 {
            return Some(proposal(
                text,
                "it takes token ids and their positions".to_owned(),
                false,
            ));
        }
        let embeds = embeds?;
        let evidence = format!("it takes token ids and returns `{embeds}`");
        Some(proposal(&["text-embedding"], evidence, false))
    })
}

fn of_speech(parts: &[VariantModel<'_>]) -> Option<Proposal> {
    let methods = parts.iter().flat_map(|(name, info)| {
        let methods = info.methods.iter().filter(|method| !method.constant);
        methods.map(move |method| (name.unwrap_or(&method.name), method))
    });
    let methods: Vec<(&str, &Method)> = methods.collect();
    let of = |word: &str| methods.iter().find(|(name, _)| name.starts_with(word));
    let (encoder, decoder) = (of("encode")?, of("decode")?);
    let hears = forms(&encoder.1.inputs).first() == Some(&TensorForm::Frames);
    let writes = forms(&decoder.1.inputs).contains(&TensorForm::Ids);
    let evidence = format!(
        "`{}` takes frames, `{}` takes token ids",
        encoder.0, decoder.0
    );
    (hears && writes).then(|| proposal(&["speech-to-text"], evidence, false))
}

fn of_name(model: &str) -> Option<Proposal> {
    NAME_HINTS.iter().find_map(|(words, capabilities)| {
        let word = words.iter().find(|word| naming::has_token(model, word))?;
        Some(proposal(
            capabilities,
            format!("the model's name contains `{word}`"),
            false,
        ))
    })
}

fn of_signature(method: &Method) -> Option<Proposal> {
    let guess = |capability: &'static str| {
        let signature: String = method.to_string().chars().take(160).collect();
        Some(proposal(
            &[capability],
            format!("the signature {signature}"),
            true,
        ))
    };
    let (inputs, outputs) = (forms(&method.inputs), forms(&method.outputs));
    match (inputs.first()?, outputs.as_slice()) {
        (TensorForm::Image, [TensorForm::Rows]) => guess("classification"),
        (TensorForm::Image, [TensorForm::Image]) if same_channels(method) => {
            guess("style-transfer")
        }
        (TensorForm::Image, [TensorForm::Image | TensorForm::Maps]) => {
            guess("semantic-segmentation")
        }
        (TensorForm::Image, [TensorForm::Frames] | [_, _, ..]) => guess("object-detection"),
        (TensorForm::Ids, [TensorForm::Frames | TensorForm::Rows]) => guess("text-embedding"),
        (TensorForm::Frames, [TensorForm::Frames | TensorForm::Rows]) => guess("speech-to-text"),
        _ => None,
    }
}

fn proposal(capabilities: &[&'static str], evidence: String, guess: bool) -> Proposal {
    Proposal {
        capabilities: capabilities.to_vec(),
        evidence,
        guess,
    }
}

/// Returns the method that callers use first.
fn main(info: &ModelInfo) -> Option<&Method> {
    let mut methods = info.methods.iter().filter(|method| !method.constant);
    info.method("forward")
        .filter(|it| !it.constant)
        .or_else(|| methods.next())
}

fn forms(values: &[pkgtool_model::ModelValue]) -> Vec<TensorForm> {
    values
        .iter()
        .filter_map(|value| Some(form(value.tensor()?)))
        .collect()
}

fn form(tensor: &TensorInfo) -> TensorForm {
    let ElementType::Known(dtype) = tensor.element else {
        return TensorForm::Other;
    };
    let is_real = matches!(
        dtype,
        DType::Float16 | DType::Float32 | DType::Float64 | DType::Bfloat16
    );
    let is_integer = matches!(dtype, DType::Int32 | DType::Int64);
    let dims = tensor.dims.as_deref().unwrap_or_default();
    match dims.len() {
        2 if is_integer => TensorForm::Ids,
        1 if is_integer => TensorForm::Positions,
        4 if (is_real || dtype == DType::Uint8) && channels(dims).is_some() => TensorForm::Image,
        4 if is_real => TensorForm::Maps,
        3 if is_real => TensorForm::Frames,
        2 if is_real => TensorForm::Rows,
        _ => TensorForm::Other,
    }
}

/// Returns the number of channels of an image, stored before or after its sizes.
fn channels(dims: &[Dim]) -> Option<u64> {
    let fixed = |dim: &Dim| match dim {
        Dim::Fixed(size) if [1, 3, 4].contains(size) => Some(*size),
        _ => None,
    };
    fixed(dims.get(1)?).or_else(|| fixed(dims.get(3)?))
}

fn same_channels(method: &Method) -> bool {
    let of = |values: &[pkgtool_model::ModelValue]| {
        let tensor = values.iter().find_map(|value| value.tensor().cloned())?;
        channels(&tensor.dims?)
    };
    of(&method.inputs) == of(&method.outputs)
}
