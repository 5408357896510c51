//! A referenced file with its declared methods and its model header.

use super::content::PathContent;
use super::reference::References;
use super::signature::DeclaredSignature;
use pkgtool_base::package::{Config, FileRef, MethodGroup, Variant, model_file};
use pkgtool_model::{self as model, ModelInfo};

/// A file of a variant, or a tokenizer file.
#[derive(Debug)]
pub(super) struct FileVersion {
    /// Name of the component, in a multi-component variant; the key of a tokenizer file.
    pub(super) component: Option<String>,
    /// The reference as written.
    pub(super) reference: String,
    /// The content at the reference.
    pub(super) content: PathContent,
    /// The file interpreted as a model.
    pub(super) model: ModelContent,
    /// The declared methods.
    pub(super) declared: Option<Vec<DeclaredSignature>>,
}

/// A file interpreted as a model.
#[derive(Debug)]
pub(super) enum ModelContent {
    /// Not opened, or in an unsupported format.
    Unknown,
    /// Unreadable; holds the reason.
    Broken(String),
    /// The content of the header.
    Read(Box<ModelInfo>),
}

impl FileVersion {
    /// Returns the tokenizer files of a config.
    pub(super) fn tokenizers(config: &Config, place: &References<'_>) -> Vec<Self> {
        let files = config.tokenizer_files.iter();
        files
            .map(|file| {
                let key = file.path.to_pointer().trim_start_matches('/').to_owned();
                Self {
                    component: Some(key),
                    reference: file.reference.clone(),
                    content: place.content(&file.reference),
                    model: ModelContent::Unknown,
                    declared: None,
                }
            })
            .collect()
    }

    /// Returns the files of a variant.
    pub(super) fn of_variant(variant: &Variant, place: &References<'_>) -> Vec<Self> {
        let groups = variant.methods_by_component();
        let files = variant.files.iter();
        files
            .map(|file| {
                let group = groups.get(&file.component.as_deref()).copied();
                Self::read(file, group, place)
            })
            .collect()
    }

    fn read(file: &FileRef, group: Option<&MethodGroup>, place: &References<'_>) -> Self {
        let content = place.content(&file.reference);
        let is_model = model_file::has_extension(&file.reference);
        let model = match content.path() {
            Some(path) if is_model && place.opens_models => match model::inspect_at(path) {
                Ok(Some(info)) => ModelContent::Read(Box::new(info)),
                Ok(None) => ModelContent::Unknown,
                Err(error) => ModelContent::Broken(error.to_string()),
            },
            _ => ModelContent::Unknown,
        };
        let declared = group.map(|group| {
            group
                .methods
                .iter()
                .map(DeclaredSignature::declared)
                .collect()
        });
        Self {
            component: file.component.clone(),
            reference: file.reference.clone(),
            content,
            model,
            declared,
        }
    }

    /// Returns the model's header, if it was read.
    pub(super) fn info(&self) -> Option<&ModelInfo> {
        match &self.model {
            ModelContent::Read(info) => Some(info),
            _ => None,
        }
    }

    /// Returns the methods of the model file, under the names by which they are called.
    pub(super) fn of_model(&self) -> Option<Vec<DeclaredSignature>> {
        let info = self.info()?;
        let methods = info.methods.iter().filter(|method| !method.constant);
        let mut methods: Vec<DeclaredSignature> =
            methods.map(DeclaredSignature::of_model).collect();
        // If the file does not name its only method, the config does.
        if let ([method], false) = (&mut methods[..], info.names_methods) {
            "forward".clone_into(&mut method.name);
            if let Some([declared]) = self.declared.as_deref() {
                method.name.clone_from(&declared.name);
            }
        }
        Some(methods)
    }
}
