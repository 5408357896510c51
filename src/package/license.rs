//! Which licence strings are known: SPDX identifiers and expressions, and model cards' slugs.

/// Slugs of model hubs and well-known model licences that SPDX does not list, in lower case.
const SLUGS: &[&str] = &[
    "apple-amlr",
    "apple-ascl",
    "bigcode-openrail-m",
    "bigscience-bloom-rail-1.0",
    "bigscience-openrail-m",
    "c-uda",
    "cc",
    "creativeml-openrail-m",
    "deepfloyd-if-license",
    "deepseek",
    "exaone",
    "falcon-llm-license",
    "fair-noncommercial-research-license",
    "flux-1-dev-non-commercial-license",
    "gemma",
    "gpl",
    "grok2-community",
    "h-research",
    "health-ai-developer-foundations",
    "hippocratic-3.0",
    "intel-research",
    "lfm-1.0",
    "lgpl",
    "lgpl-lr",
    "llama2",
    "llama-2-community",
    "llama3",
    "llama-3-community",
    "llama3.1",
    "llama-3.1-community",
    "llama3.2",
    "llama-3.2-community",
    "llama3.3",
    "llama-3.3-community",
    "llama4",
    "llama-4-community",
    "mnpl-0.1",
    "mrl-0.1",
    "nvidia-open-model-license",
    "open-mdw",
    "openrail",
    "openrail++",
    "other",
    "pddl",
    "qwen",
    "qwen-research",
    "qualcomm-ai-hub-proprietary-license",
    "stabilityai-ai-community",
    "tongyi-qianwen",
    "unlicense",
    "yi-license",
];

/// Whether `license` is an SPDX identifier or expression in any case, or a known slug.
pub fn is_known(license: &str) -> bool {
    let is_slug = SLUGS.iter().any(|slug| license.eq_ignore_ascii_case(slug));
    is_slug || is_spdx(license)
}

fn is_spdx(license: &str) -> bool {
    // Identifiers match in any case (SPDX specification, annex on licence expressions).
    let same = |known: &str| known.eq_ignore_ascii_case(license);
    spdx::identifiers::LICENSES
        .iter()
        .any(|known| same(known.name))
        || spdx::Expression::parse_mode(license, spdx::ParseMode::LAX).is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn knows_identifiers_expressions_and_slugs() {
        for known in [
            "Apache-2.0",
            "apache-2.0",
            "bsd-3-clause",
            "MIT OR Apache-2.0",
            "LicenseRef-acme",
            "llama-3.2-community",
            "lfm-1.0",
            "creativeml-openrail-m",
        ] {
            assert!(is_known(known), "{known}");
        }
        for unknown in ["", "see README", "proprietary", "Apache License", "BSD 9"] {
            assert!(!is_known(unknown), "{unknown}");
        }
    }
}
