//! Combines the facts from all files of one directory, before config fields are written.

use super::arrange::{self, Arrangement, NameHints};
use super::beside::{self, NearbyPlaces, NeighbourFile, Sibling};
use super::capability::{self, Proposal, VariantModel};
use super::file::InitModel;
use super::home::{ExistingConfig, ModelDirectory};
use super::names::{self, NameParts};
use super::precision;
use super::{InitOptions, kept, license};
use pkgtool_base::package::{Backend, PrecisionList, Roots};

/// A directory and the facts about it.
#[derive(Debug)]
pub(super) struct Sketch {
    pub(super) home: ModelDirectory,
    pub(super) list: PrecisionList,
    pub(super) files: Vec<InitModel>,
    pub(super) backend: Option<Inferred<Backend>>,
    /// Precisions of the files, in their order.
    pub(super) precisions: Vec<Option<Inferred<String>>>,
    pub(super) arrangement: Arrangement,
    pub(super) license: Option<Inferred<String>>,
    pub(super) family: Option<Inferred<String>>,
    pub(super) capabilities: Option<Inferred<Vec<String>>>,
    pub(super) tokenizer: Option<NeighbourFile>,
    pub(super) tokenizer_config: Option<NeighbourFile>,
    /// Components that are not models.
    pub(super) data: Vec<(String, NeighbourFile)>,
}

/// A value and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inferred<T> {
    pub(super) value: T,
    pub(super) evidence: String,
    pub(super) guess: bool,
}

impl<T> Inferred<T> {
    pub(super) fn sure(value: T, evidence: impl Into<String>) -> Self {
        Self {
            value,
            evidence: evidence.into(),
            guess: false,
        }
    }
}

impl Sketch {
    /// Inspects the files of a directory and its surroundings.
    pub(super) fn draw(
        home: ModelDirectory,
        list: PrecisionList,
        options: &InitOptions,
        roots: &Roots,
    ) -> Self {
        let names = home.files.iter();
        let files: Vec<InitModel> = names
            .map(|name| InitModel::open(&home.directory, name))
            .collect();
        let parts: Vec<NameParts> = files
            .iter()
            .map(|file| names::parse_name(&file.name, &list))
            .collect();
        let heads: Vec<&str> = parts.iter().map(|parts| parts.head.as_str()).collect();
        let (above, higher) = (home.above(1), home.above(2));
        let kept_size = kept::size(&home.there);
        let arrangement = arrange::arrange(
            &heads,
            &NameHints {
                model: options.given.model.as_deref(),
                size: options.given.size.as_deref(),
                kept_size: kept_size.as_deref(),
                above: above.as_deref(),
                higher: higher.as_deref(),
            },
        );
        let mut sketch = Self {
            backend: backend(&home, &parts, &files, options),
            precisions: precisions(&home, &parts, &files, &list, options),
            arrangement,
            home,
            list,
            files,
            license: None,
            family: None,
            capabilities: None,
            tokenizer: None,
            tokenizer_config: None,
            data: Vec::new(),
        };
        sketch.look_around();
        sketch.identify(options, roots);
        sketch
    }

    /// Returns the model token, if it is known.
    pub(super) fn model(&self) -> Option<&str> {
        Some(self.arrangement.model.as_ref()?.token.as_str())
    }

    fn look_around(&mut self) {
        let home = &self.home;
        let in_size_directory = self.arrangement.in_size_directory;
        let places = NearbyPlaces::new(home.places(in_size_directory));
        let is_pipeline = self.arrangement.components.is_some();
        self.tokenizer = places.tokenizer(!is_pipeline);
        self.tokenizer = kept::beside(home, "tokenizer").or(self.tokenizer.take());
        let tokenizer = self.tokenizer.as_ref();
        self.tokenizer_config = kept::beside(home, "tokenizer_config")
            .or_else(|| tokenizer.and_then(NeighbourFile::tokenizer_config));
        if is_pipeline {
            self.data = places.data();
            // A tokenizer that the config itself references is not a component as well.
            let named = self.tokenizer.is_some();
            self.data
                .retain(|(name, _)| !(named && name == "tokenizer"));
        }
        let found = license::find(home.places(in_size_directory));
        self.license = found.map(|found| Inferred {
            value: found.name,
            evidence: found.evidence,
            guess: found.guess,
        });
    }

    /// Determines family, capabilities and licence: given values first, then those of other configs
    /// of this model, then proposals.
    fn identify(&mut self, options: &InitOptions, roots: &Roots) {
        let given = &options.given;
        let mut others = Vec::new();
        if let ExistingConfig::Something(loaded) = &self.home.there {
            others.extend(Sibling::read(loaded, "the replaced config".to_owned()));
        }
        if let Some(model) = self.model() {
            others.extend(beside::siblings(&self.home.absolute, model, roots));
        }
        let other = |pick: &dyn Fn(&Sibling) -> Option<String>| {
            others.iter().find_map(|sibling| {
                let value = pick(sibling).filter(|it| !it.is_empty() && !is_placeholder(it))?;
                Some(Inferred::sure(value, sibling.shown.clone()))
            })
        };
        let flag = |value: &Option<String>, flag: &str| {
            let value = value.clone();
            value.map(|value| Inferred::sure(value, format!("given with `{flag}`")))
        };
        self.family = flag(&given.family, "--family")
            .or_else(|| other(&|it| it.config.family.clone()))
            .or_else(|| {
                let evidence = "the model's own name; no file names a family";
                let value = self.model()?.to_owned();
                Some(Inferred {
                    value,
                    evidence: evidence.to_owned(),
                    guess: true,
                })
            });
        self.license = flag(&given.license, "--license")
            .or_else(|| other(&|it| it.config.license.clone()))
            .or_else(|| self.license.take());
        let named = others.iter().find(|it| {
            let capabilities = &it.config.capabilities;
            !capabilities.is_empty() && !capabilities.iter().any(|it| is_placeholder(it))
        });
        self.capabilities = if !given.capabilities.is_empty() {
            let given = given.capabilities.clone();
            Some(Inferred::sure(given, "given with `--capability`"))
        } else if let Some(sibling) = named {
            let value = sibling.config.capabilities.clone();
            Some(Inferred::sure(value, sibling.shown.clone()))
        } else {
            self.propose()
        };
    }

    fn propose(&self) -> Option<Inferred<Vec<String>>> {
        let components = self.arrangement.components.as_deref();
        let parts: Vec<VariantModel<'_>> = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(index, file)| {
                let component = components.and_then(|names| names.get(index));
                Some((component.map(String::as_str), file.model()?))
            })
            .collect();
        let Proposal {
            capabilities,
            evidence,
            guess,
        } = capability::propose(&parts, self.model().unwrap_or_default())?;
        let value = capabilities.into_iter().map(str::to_owned).collect();
        Some(Inferred {
            value,
            evidence,
            guess,
        })
    }
}

/// Gives the sketches of one model the same capabilities, because these are independent of the
/// backend. A certain value of one sketch applies to all.
pub(super) fn agree(sketches: &mut [Sketch]) {
    let key = |sketch: &Sketch| {
        let level = if sketch.arrangement.in_size_directory {
            2
        } else {
            1
        };
        let place = sketch.home.absolute.ancestors().nth(level)?.to_owned();
        Some((place, sketch.model()?.to_owned()))
    };
    for index in 0..sketches.len() {
        let Some(own) = key(&sketches[index]) else {
            continue;
        };
        let best = sketches
            .iter()
            .filter(|other| key(other).as_ref() == Some(&own));
        let best = best.filter_map(|other| Some((&other.home, other.capabilities.clone()?)));
        // A certain value wins; among equals, the first.
        let Some((home, found)) = best.min_by_key(|(_, said)| said.guess) else {
            continue;
        };
        let shown = home
            .absolute
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_own = home.absolute == sketches[index].home.absolute;
        let differs = sketches[index]
            .capabilities
            .as_ref()
            .is_none_or(|it| it.value != found.value || it.guess);
        if !is_own && differs {
            let evidence = format!("as for {shown}/: {}", found.evidence);
            sketches[index].capabilities = Some(Inferred { evidence, ..found });
        }
    }
}

fn is_placeholder(text: &str) -> bool {
    pkgtool_base::package::leftover::is_placeholder(text)
}

fn backend(
    home: &ModelDirectory,
    parts: &[NameParts],
    files: &[InitModel],
    options: &InitOptions,
) -> Option<Inferred<Backend>> {
    if let Some(named) = home.named {
        return Some(Inferred::sure(named, format!("the directory `{named}`")));
    }
    if let Some(given) = options.given.backend {
        return Some(Inferred::sure(given, "given with `--backend`"));
    }
    let mut named = parts.iter().map(|parts| parts.backend);
    if let Some(first) = named.next().flatten()
        && named.all(|other| other == Some(first))
    {
        return Some(Inferred::sure(first, "the model files' names"));
    }
    let mut delegates: Vec<Backend> = files
        .iter()
        .filter_map(InitModel::model)
        .flat_map(|info| info.methods.iter().flat_map(|method| &method.delegates))
        .filter_map(|delegate| Backend::of_delegate(&delegate.id))
        .collect();
    delegates.dedup();
    match delegates[..] {
        [one] => {
            let evidence = format!("the programs' delegates, {}", one.delegate_id());
            Some(Inferred::sure(one, evidence))
        }
        _ => None,
    }
}

fn precisions(
    home: &ModelDirectory,
    parts: &[NameParts],
    files: &[InitModel],
    list: &PrecisionList,
    options: &InitOptions,
) -> Vec<Option<Inferred<String>>> {
    let given = &options.given;
    let pairs = files.iter().zip(parts);
    pairs
        .map(|(file, parts)| {
            if let Some(token) = given.precisions.get(&file.name) {
                return Some(Inferred::sure(token.clone(), "given with `--precision`"));
            }
            if let Some(token) = &parts.precision {
                return Some(Inferred::sure(token.clone(), "the file's name"));
            }
            if let Some(token) = &given.precision {
                return Some(Inferred::sure(token.clone(), "given with `--precision`"));
            }
            let path = home.directory.join(&file.name);
            let stored = precision::of_contents(&path, file.model()?, list)?;
            Some(Inferred {
                value: stored.token.to_owned(),
                evidence: stored.evidence,
                guess: stored.guess,
            })
        })
        .collect()
}
