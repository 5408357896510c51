//! Derives the model and its components from the names of the model files in a directory.
//!
//! Files of one precision whose names differ only by a component word are components of one
//! variant. Words for chips or resolutions (`sm8650`, `256`) distinguish variants, not components.

use super::kept;
use super::names::{common_beginning, rest_after, strip_end};
use pkgtool_base::package::naming;
use pkgtool_base::package::size::{is_count, is_size_token};

/// Words that form a component name together with the next word: `text_encoder`, `vae_decoder`.
const QUALIFIERS: [&str; 8] = [
    "text", "image", "vision", "audio", "vae", "prompt", "speech", "token",
];
/// File names that do not identify a model.
const NO_NAMES: [&str; 8] = [
    "", "model", "program", "network", "forward", "main", "output", "graph",
];

/// Facts that are known before the file names are analysed.
#[derive(Debug, Default)]
pub(super) struct NameHints<'a> {
    /// The model, if the author gave it.
    pub(super) model: Option<&'a str>,
    /// The size, if the author gave it.
    pub(super) size: Option<&'a str>,
    /// The size in the config that is being replaced.
    pub(super) kept_size: Option<&'a str>,
    /// The directory above the backend's, as a token.
    pub(super) above: Option<&'a str>,
    /// The directory above that one, as a token.
    pub(super) higher: Option<&'a str>,
}

/// A token with its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InferredToken {
    pub(super) token: String,
    pub(super) evidence: String,
}

/// The model, size and components that the file names of a directory imply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arrangement {
    pub(super) model: Option<InferredToken>,
    pub(super) size: Option<InferredToken>,
    /// True if the parent directory is named after the size rather than the model.
    pub(super) in_size_directory: bool,
    /// The component of each file, in order; `None` if each file is a variant of its own.
    pub(super) components: Option<Vec<String>>,
    /// The reason why the model is unknown.
    pub(super) doubt: Option<String>,
}

/// Analyses the heads of the file names, one for each file.
pub(super) fn arrange(heads: &[&str], known: &NameHints<'_>) -> Arrangement {
    let mut distinct = heads.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let mut beginning = common_beginning(&distinct);
    if let Some(model) = known.model
        && distinct
            .iter()
            .all(|head| rest_after(head, model).is_some())
    {
        // The author's token ends where the components begin, possibly before the size.
        let shorter = rest_after(&beginning, model).unwrap_or_default();
        let size = known.size.or(known.kept_size).or(known.above);
        let size = size.unwrap_or_default();
        if shorter != size {
            model.clone_into(&mut beginning);
        }
    }
    let is_repository = known.above == Some(beginning.as_str());
    if distinct.len() > 1
        && known.model.is_none()
        && !is_repository
        && let Some((before, last)) = beginning.rsplit_once('_')
        && QUALIFIERS.contains(&last)
    {
        beginning = before.to_owned();
    }
    let rest = |head: &str| rest_after(head, &beginning).unwrap_or(head).to_owned();
    let rests: Vec<String> = heads.iter().map(|head| rest(head)).collect();
    let are_components = distinct.len() > 1 && rests.iter().all(|rest| is_component(rest));
    let mut arrangement = Arrangement::default();
    arrangement.infer_model_and_size(
        &beginning,
        known,
        distinct.len() > 1 && beginning.is_empty(),
    );
    if are_components && beginning.is_empty() && known.model.is_none() {
        let are_known = rests.iter().all(|rest| is_part(rest));
        if !are_known {
            arrangement.model = None;
            arrangement.doubt = Some(format!(
                "names have no common beginning ({}): one model's components, or several models",
                listed(&distinct)
            ));
        }
    }
    arrangement.components = are_components.then_some(rests);
    arrangement
}

impl Arrangement {
    /// Determines model and size from the common beginning of all names.
    fn infer_model_and_size(&mut self, beginning: &str, known: &NameHints<'_>, no_beginning: bool) {
        let mut model = beginning;
        let given = known.size.map(|size| (size, "given with `--size`"));
        let kept = known.kept_size.map(|size| (size, kept::EVIDENCE));
        if let Some((size, evidence)) = given.or(kept) {
            model = strip_end(beginning, size).unwrap_or(model);
            self.size = Some(inferred(size, evidence));
            self.in_size_directory = known.above == Some(size);
        } else if let Some(above) = known.above.filter(|above| is_size_token(above)) {
            // A size word may be the model's own name, so it counts only if the names have it after
            // another word.
            if let Some(before) = strip_end(beginning, above) {
                model = before;
            }
            if model != beginning || is_count(above) {
                self.size = Some(inferred(above, format!("the directory `{above}`")));
                self.in_size_directory = true;
            }
        } else if let Some(before) = known.above.filter(|it| rest_after(beginning, it).is_some()) {
            let rest = rest_after(beginning, before).unwrap_or_default();
            if is_count(rest) {
                let evidence = format!("names have it after the directory's `{before}`");
                self.size = Some(inferred(rest, evidence));
                model = before;
            }
        }
        let directory = if self.in_size_directory {
            known.higher
        } else {
            known.above
        };
        self.model = match (known.model, directory) {
            (Some(given), _) => Some(inferred(given, "given with `--model`")),
            _ if !no_beginning && !NO_NAMES.contains(&model) => {
                Some(inferred(model, "the model files' names begin with it"))
            }
            (_, Some(directory)) if !directory.is_empty() => Some(inferred(
                directory,
                "the directory; the file names do not contain it",
            )),
            _ => None,
        };
    }
}

/// Returns a sort key for a component.
pub(super) fn rank(component: &str) -> (usize, &str) {
    // `text_encoder` runs before `encoder`: the first known word decides.
    let place = |word: &str| naming::PARTS.iter().position(|part| *part == word);
    (
        component
            .split('_')
            .find_map(place)
            .unwrap_or(naming::PARTS.len()),
        component,
    )
}

fn inferred(token: &str, evidence: impl Into<String>) -> InferredToken {
    InferredToken {
        token: token.to_owned(),
        evidence: evidence.into(),
    }
}

/// Returns whether the part after the model is a component: it has a word other than a number, size
/// or chip.
fn is_component(rest: &str) -> bool {
    rest.split('_').any(|word| !is_free(word))
}

fn is_part(rest: &str) -> bool {
    rest.split('_').any(|word| naming::PARTS.contains(&word))
}

/// Returns whether a word distinguishes variants: a resolution, a chip, a version or a size.
fn is_free(word: &str) -> bool {
    let digits =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'x');
    let chip = ["sm", "sa", "qcs", "qcm", "v", "b", "bs"];
    word.is_empty()
        || digits(word)
        || is_size_token(word)
        || chip.iter().any(|chip| {
            let number = word.strip_prefix(chip).map(|it| it.trim_end_matches('p'));
            number.is_some_and(digits)
        })
}

fn listed(heads: &[&str]) -> String {
    const MOST: usize = 5;
    let shown: Vec<String> = heads
        .iter()
        .take(MOST)
        .map(|head| format!("`{head}`"))
        .collect();
    match heads.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{NameHints, arrange};

    fn of(heads: &[&str], above: &str, higher: &str) -> (String, String, Vec<String>) {
        let known = NameHints {
            above: Some(above),
            higher: Some(higher),
            ..NameHints::default()
        };
        let found = arrange(heads, &known);
        let token =
            |told: Option<super::InferredToken>| told.map_or(String::new(), |told| told.token);
        let components = found.components.unwrap_or_default();
        (token(found.model), token(found.size), components)
    }

    #[test]
    fn names_and_directories_say_model_size_and_components() {
        let told = |model: &str, size: &str, components: &[&str]| {
            let components = components.iter().map(|it| (*it).to_owned()).collect();
            (model.to_owned(), size.to_owned(), components)
        };
        for (heads, above, higher, expected) in [
            (
                &["glimpse", "glimpse"][..],
                "glimpse",
                "",
                told("glimpse", "", &[]),
            ),
            (
                &["pebble_0_6b"],
                "0_6b",
                "pebble",
                told("pebble", "0_6b", &[]),
            ),
            (&["pebble_1b"], "pebble", "x", told("pebble", "1b", &[])),
            (&["spotter_s"], "s", "spotter", told("spotter", "s", &[])),
            (
                &["whisper_tiny_en"],
                "whisper",
                "",
                told("whisper_tiny_en", "", &[]),
            ),
            (&["tiny"], "tiny", "x", told("tiny", "", &[])),
            (&["model"], "my_net", "", told("my_net", "", &[])),
            (
                &["m_encoder", "m_decoder"],
                "m",
                "",
                told("m", "", &["encoder", "decoder"]),
            ),
            (
                &["m_vae_encoder", "m_vae_decoder"],
                "m",
                "",
                told("m", "", &["vae_encoder", "vae_decoder"]),
            ),
            (
                &["m_1b_encoder", "m_1b_decoder"],
                "1b",
                "m",
                told("m", "1b", &["encoder", "decoder"]),
            ),
            (
                &["encoder", "decoder"],
                "m",
                "",
                told("m", "", &["encoder", "decoder"]),
            ),
            (
                &["yolo_sm8650", "yolo_sm8750"],
                "yolo",
                "",
                told("yolo", "", &[]),
            ),
            (&["seg_256", "seg_512x512"], "seg", "", told("seg", "", &[])),
            (&["one", "two"], "", "", told("", "", &["one", "two"])),
        ] {
            assert_eq!(of(heads, above, higher), expected, "{heads:?} in {above}");
        }
    }
}
