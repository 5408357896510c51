//! `pkgtool inspect PACKAGE`: the model that `run` takes, and the recipe for its answers.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::super::exit::{Exit, Failure};
use super::super::report::{self, CommandReport};
use pkgtool_base::diagnostic::TextTable;
use pkgtool_base::package::{Backend, Config};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionCriteria};
use pkgtool_media::recipe::{self, RecipeChoice};
use pkgtool_media::{MediaKind, voice};

/// A package, as the command shows it.
struct InspectedPackage<'a> {
    path: &'a Path,
    config: Config,
    /// The models of the variant, with their methods.
    methods: Vec<Selection>,
    /// The method that answers, or the reason that none does.
    choice: Result<RecipeChoice, String>,
}

/// Shows the package that a path stands for. Returns `None` for a model file.
pub(super) fn shown(path: &Path, as_json: bool) -> Option<Result<Exit, Failure>> {
    selection::is_package(path).then(|| show(path, as_json))
}

fn show(path: &Path, as_json: bool) -> Result<Exit, Failure> {
    let failure = |error: selection::SelectionError| Failure::Other(error.to_string());
    let criteria = SelectionCriteria::default();
    let methods = selection::candidates(path, &criteria).map_err(failure)?;
    let variant = methods.first().and_then(|method| method.variant.as_ref());
    let variant = variant.ok_or_else(|| {
        Failure::Other(format!(
            "{}: no model with tensors in and out",
            path.display()
        ))
    })?;
    let config = selection::config(&variant.config).map_err(failure)?;
    let choice = recipe::choose_among(&methods, &config);
    let inspected = InspectedPackage {
        path,
        config,
        methods,
        choice,
    };
    report::print(&inspected, as_json)?;
    Ok(Exit::Clean)
}

impl CommandReport for InspectedPackage<'_> {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Config {
            family,
            capabilities,
            license,
            ..
        } = &self.config;
        let variant = self.methods[0].variant.as_ref();
        let name = variant.map_or("", |variant| &variant.package);
        writeln!(text, "{}: {}", text_of(self.path), defuse_line(name))?;
        let mut facts = TextTable::of_text(2).indented();
        let mut fact = |key: &str, value: &str| facts.row([key.to_owned(), defuse_line(value)]);
        fact("family", family.as_deref().unwrap_or("none"));
        fact("capabilities", &capabilities.join(", "));
        fact("license", license.as_deref().unwrap_or("none"));
        if let Some(variant) = variant {
            fact("config", &variant.config.display().to_string());
            fact(
                "backend",
                variant.backend.map_or("none", |backend| backend.name()),
            );
            fact("precision", variant.precision.as_deref().unwrap_or("none"));
        }
        let precisions = self.config.variants.iter();
        let precisions = precisions.filter_map(|variant| variant.precision.as_deref());
        fact("precisions", &precisions.collect::<Vec<_>>().join(", "));
        for method in &self.methods {
            let model = format!(
                "{}, method {}",
                method.model.display(),
                method.signature.method
            );
            fact("model", &model);
        }
        write!(text, "{facts}")?;
        match &self.choice {
            Ok(choice) => {
                write_recipe(text, choice)?;
                writeln!(
                    text,
                    "\n`pkgtool run {} {} --set NAME=VALUE` overrides a value. {} beside the model replaces the recipe.",
                    text_of(self.path),
                    match choice.recipe.fitted.takes {
                        MediaKind::Text => "TEXT",
                        _ => "FILE",
                    },
                    recipe::FILE_NAME
                )
            }
            Err(reason) => writeln!(text, "\n{}", defuse_line(reason)),
        }
    }

    fn document(&self) -> impl Serialize {
        let variant = self.methods[0].variant.as_ref();
        let methods = self.methods.iter();
        let methods = methods.map(|method| {
            json!({
                "model": method.model,
                "component": method.variant.as_ref().and_then(|it| it.component.clone()),
                "method": method.signature.method,
            })
        });
        json!({
            "version": 1,
            "package": variant.map(|it| &it.package),
            "family": self.config.family,
            "capabilities": self.config.capabilities,
            "license": self.config.license,
            "config": variant.map(|it| &it.config),
            "backend": variant.and_then(|it| it.backend).map(Backend::name),
            "precision": variant.and_then(|it| it.precision.as_ref()),
            "methods": methods.collect::<Vec<_>>(),
            "recipe": self.choice.as_ref().ok().map(recipe_json),
            "no_recipe": self.choice.as_ref().err(),
        })
    }
}

fn text_of(path: &Path) -> String {
    defuse_line(&path.display().to_string())
}

fn write_recipe(text: &mut String, choice: &RecipeChoice) -> std::fmt::Result {
    let fitted = &choice.recipe.fitted;
    let head = format!("{} ({}): {}", fitted.name, fitted.file, fitted.summary);
    writeln!(text, "\nrecipe {}", defuse_line(&head))?;
    let model = choice.selection.model.display().to_string();
    writeln!(text, "  model   {}", defuse_line(&model))?;
    if let Some(Selection {
        model, signature, ..
    }) = second(choice)
    {
        let decoder = format!("{}, method {}", model.display(), signature.method);
        writeln!(text, "  decoder {}", defuse_line(&decoder))?;
    }
    writeln!(text, "  source  {}", defuse_line(&fitted.source))?;
    let mut rows = TextTable::of_text(3).indented();
    for (name, resolved) in &fitted.values {
        // The recipe's own values have the source above.
        let origin = if fitted.is_own(resolved) {
            String::new()
        } else {
            defuse_line(&resolved.origin)
        };
        rows.row([
            defuse_line(name),
            defuse_line(&resolved.value.to_string()),
            origin,
        ]);
    }
    if let Some(labels) = fitted.labels() {
        let count = format!("{} of the package", labels.count());
        rows.row(["names".to_owned(), count, defuse_line(&labels.source)]);
    }
    let voices = voices(choice);
    if !voices.is_empty() {
        rows.row(["voices".to_owned(), voices.join(", "), String::new()]);
    }
    write!(text, "{rows}")?;
    choice
        .reader
        .iter()
        .try_for_each(|reader| write_recipe(text, reader))
}

/// Returns the model that decodes what the first one gives, or makes its sound.
fn second(choice: &RecipeChoice) -> Option<&Selection> {
    let decoder = choice.decoder.as_ref().map(|it| &it.selection);
    decoder.or(choice.synthesizer.as_ref().map(|it| &it.selection))
}

/// Returns the names of the voices of a model that speaks.
fn voices(choice: &RecipeChoice) -> Vec<String> {
    match choice.recipe.fitted.takes {
        MediaKind::Text => voice::voice_names(&choice.selection.model),
        _ => Vec::new(),
    }
}

fn recipe_json(choice: &RecipeChoice) -> Json {
    let fitted = &choice.recipe.fitted;
    json!({
        "name": fitted.name,
        "file": fitted.file,
        "summary": fitted.summary,
        "source": fitted.source,
        "model": choice.selection.model,
        "method": choice.selection.signature.method,
        "values": fitted.values,
        "label_source": fitted.labels().map(|it| &it.source),
        "decoder": second(choice).map(|decoder| json!({
            "model": decoder.model,
            "method": decoder.signature.method,
        })),
        "voices": voices(choice),
        "reader": choice.reader.as_deref().map(recipe_json),
    })
}
