//! Rule `card-disagrees`: reports configs that contradict the model card.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::card::Card;
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::size::{as_token, is_count};
use pkgtool_base::package::Config;
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::schema::capabilities_of;

/// Minimum length of a word that makes two names count as related, in letters.
const MIN_WORD_CHARS: usize = 3;
/// Values of `license` in a card that name no specific licence.
const NO_LICENSES: [&str; 2] = ["other", "unknown"];
/// Endings of licence names that some lists include and others omit.
const ENDINGS: [&str; 5] = ["community", "license", "licence", "only", "orlater"];

rule! {
    /// # What it checks
    /// The config agrees with the front matter of the nearest model card. The card is the
    /// `README.md` in the config's directory or above it, up to the package root. `license` is the
    /// config's licence. `pipeline_tag` (or, without it, a tag that is a task) is one of its
    /// capabilities. `base_model` shares a word with the config's `model` or `family`, and its size
    /// is the config's size.
    ///
    /// # Why
    /// People read the card, applications read the config. If the licence differs between the two,
    /// it is wrong in one of them.
    ///
    /// # Example
    /// `license: llama3.2` in `README.md` beside `xnnpack/config.json` with `"license": "MIT"`.
    ///
    /// # Fix
    /// Find out which of the two is right, and correct the other.
    ///
    /// # What it does not see
    /// Several licences in one card, tasks without a corresponding capability, cards with another
    /// file name, and configs outside the card's repository.
    PKG061 "card-disagrees" Warning "The model card contradicts the config." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let (Some(card), Some(config)) = (context.card, &context.config) else {
        return;
    };
    let is_sound = |key: &str| !context.is_violated_at(key);
    findings.extend(license(card, config).filter(|_| is_sound("license")));
    findings.extend(task(card, config).filter(|_| is_sound("capabilities")));
    findings.extend(base(card, config).filter(|_| is_sound("model") && is_sound("size")));
}

fn disagreement(key: &str, here: &str, there: &str) -> Finding {
    let anchor = Anchor::Value(JsonPath::root().key(key));
    let message = format!("`{key}` is {here}, but the model card says `{there}`");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("correct the config or the front matter of README.md, whichever is wrong")
}

fn license(card: &Card, config: &Config) -> Option<Finding> {
    let (theirs, own) = (card.license.as_deref()?, config.license.as_deref()?);
    let is_said = !NO_LICENSES.contains(&theirs) && !is_placeholder(own) && !own.trim().is_empty();
    let same = |word: &str| plain_license(word) == plain_license(theirs);
    let parts = || own.split(|c: char| c.is_whitespace() || "()".contains(c));
    // A card may name a family of licences (`openrail`).
    let is_part = theirs.len() > MIN_WORD_CHARS * 2 && plain_license(own).contains(&plain_license(theirs));
    let agrees = same(own) || parts().any(same) || is_part;
    (is_said && !agrees).then(|| disagreement("license", own, &format!("license: {theirs}")))
}

/// Normalizes a licence name: `llama3.2` and `llama-3.2-community` become equal.
fn plain_license(name: &str) -> String {
    let lower = name.to_lowercase();
    let own = lower.strip_prefix("licenseref-").unwrap_or(&lower);
    let mut plain: String = own.chars().filter(|c| c.is_alphanumeric()).collect();
    for ending in ENDINGS {
        let length = plain.strip_suffix(ending).map_or(plain.len(), str::len);
        plain.truncate(length);
    }
    plain
}

fn task(card: &Card, config: &Config) -> Option<Finding> {
    let own = &config.capabilities;
    let tasks: Vec<(&String, Vec<&str>)> = match &card.pipeline_tag {
        Some(tag) => vec![(tag, capabilities_of(tag))],
        None => card.tags.iter().map(|tag| (tag, capabilities_of(tag))).collect(),
    };
    let mut known = tasks.iter().filter(|(_, meant)| !meant.is_empty());
    let agrees = |meant: &[&str]| meant.iter().any(|one| own.iter().any(|own| own == one));
    let (tag, _) = known.clone().next()?;
    let has_placeholder = own.iter().any(|one| is_placeholder(one));
    if own.is_empty() || has_placeholder || known.any(|(_, meant)| agrees(meant)) {
        return None;
    }
    let key = if card.pipeline_tag.is_some() { "pipeline_tag" } else { "tags" };
    Some(disagreement("capabilities", &own.join(", "), &format!("{key}: {tag}")))
}

fn base(card: &Card, config: &Config) -> Option<Finding> {
    let model = config.model.as_deref().filter(|model| !is_placeholder(model))?;
    let names = || card.base_models.iter().map(|base| base.rsplit('/').next().unwrap_or(base));
    let first = card.base_models.first()?;
    let own = || [Some(model), config.family.as_deref()].into_iter().flatten();
    if !names().any(|base| own().any(|own| is_akin(base, own))) {
        return Some(disagreement("model", model, &format!("base_model: {first}")));
    }
    let size = config.size.as_deref().filter(|size| is_count(size))?;
    let mut counts = names().flat_map(|base| base.split(['-', '_', ' '])).filter(|part| is_count(part));
    let (count, more) = (counts.next()?, counts.next());
    let differs_in_size = more.is_none() && as_token(count) != size;
    differs_in_size.then(|| disagreement("size", size, &format!("base_model: {first}")))
}

/// Returns whether two names share a word, or one contains the other.
fn is_akin(base: &str, own: &str) -> bool {
    let plain = |text: &str| -> String {
        text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect()
    };
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphabetic()).map(str::to_owned);
        words.filter(|word| word.chars().count() >= MIN_WORD_CHARS).collect()
    };
    let (base_words, own_words) = (words(base), words(own));
    plain(base).contains(&plain(own))
        || plain(own).contains(&plain(base))
        || base_words.iter().any(|word| own_words.contains(word))
        || base_words.is_empty()
        || own_words.is_empty()
}

#[cfg(test)]
mod tests {
    use super::{is_akin, plain_license};

    #[test]
    fn names_of_one_thing_agree() {
        for (card, config) in [
            ("llama3.2", "llama-3.2-community"),
            ("apache-2.0", "Apache-2.0"),
            ("gpl-3.0", "GPL-3.0-only"),
            ("lfm1.0", "LicenseRef-lfm-1.0"),
        ] {
            assert_eq!(plain_license(card), plain_license(config), "{card}");
        }
        assert_ne!(plain_license("llama3.1"), plain_license("llama-3.2-community"));
        for (base, own) in [
            ("Llama-3.2-1B-Instruct", "llama_3_2"),
            ("whisper-tiny.en", "whisper_tiny_en"),
            ("SmolLM2-135M", "smollm_2"),
            ("clip-vit-base-patch32", "clip"),
            ("Qwen3-0.6B", "qwen"),
        ] {
            assert!(is_akin(base, own), "{base}");
        }
        assert!(!is_akin("Qwen3-0.6B", "llama_3_2"));
    }
}
