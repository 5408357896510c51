//! Builds the services of a package: validates it, then reads the headers of its models.
//!
//! Invariant: services are built only from packages without errors, and models are not loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{
    Attached, Device, DeviceParts, PackageConfig, RunOn, Service, ServiceKind, ServiceSettings,
};
use super::options::CatalogOptions;
use super::survey::{ServedPackage, precision_lists};
use pkgtool_base::diagnostic::{Diagnostic, Report, Severity};
use pkgtool_base::package::config::variant_at;
use pkgtool_base::package::{Config, Discovery, FoundFile, LoadedFile, PrecisionList, Roots};
use pkgtool_check::policy::Policy;
use pkgtool_check::validate::{self, FileLocation, ProjectPolicy, Requirements, ValidationOptions};

/// A service that has no number yet.
#[derive(Debug, Clone)]
pub(super) struct BuiltService {
    pub(super) name: String,
    pub(super) settings: ServiceSettings,
    pub(super) device: Arc<Device>,
}

/// Validates a package and creates its devices. The error has one line per finding.
pub(super) fn build(
    package: &ServedPackage,
    options: &CatalogOptions,
) -> Result<Vec<BuiltService>, String> {
    let own_tokens = ProjectTokens(Policy::nearest());
    validate_with(package, &own_tokens)?;
    let roots = Roots::new();
    let mut identities: BTreeMap<String, Vec<PackageConfig>> = BTreeMap::new();
    for found in &package.configs {
        let document = LoadedFile::read(&found.path).document;
        let Ok(document) = document else {
            return Err(format!(
                "{}: the package changed while it was read",
                found.path.display()
            ));
        };
        let mut config = Config::from_document(&document);
        let left_out = package.home.left_out(&found.path);
        config
            .variants
            .retain(|variant| !left_out.contains(&variant.position));
        if config.variants.is_empty() && !left_out.is_empty() {
            continue;
        }
        let lists = precision_lists(found, &roots);
        let parsed = PackageConfig {
            path: found.path.clone(),
            precisions: Arc::new(
                precisions(lists).with(&own_tokens.0.extra_precisions(&found.path)),
            ),
            config,
        };
        let name = service_name(package, &parsed.config);
        let name = name.ok_or_else(|| format!("{}: missing model token", parsed.path.display()))?;
        reject_number(&name, &parsed)?;
        let same = identities.entry(name).or_default();
        reject_second(same, &parsed)?;
        same.push(parsed);
    }
    let identities = identities.into_iter();
    let files = package.files();
    identities
        .map(|(name, configs)| {
            let owner = &package.home.owner_name;
            let settings = (options.settings)(owner, &name);
            let device = Device::new(DeviceParts {
                label: format!("{owner}/{name}"),
                configs: configs.into(),
                settings: settings.clone(),
                engines: Arc::clone(&options.engines),
                created_at: package.fingerprint.created_at(),
                updated_at: package.fingerprint.updated_at(),
                files: files.clone(),
                workers: workers(package, &name, &settings, options),
            })?;
            Ok(BuiltService {
                name,
                settings,
                device: Arc::new(device),
            })
        })
        .collect()
}

/// Returns the workers that run the models of a service, if they do not run here. Trained services always run here.
fn workers(
    package: &ServedPackage,
    name: &str,
    settings: &ServiceSettings,
    options: &CatalogOptions,
) -> Option<Arc<Attached>> {
    if settings.run_on != RunOn::Workers || package.home.named_by_folders {
        return None;
    }
    let attached = options.attached.as_ref()?;
    Some(attached.of(package.home.owner, name))
}

/// Assigns the services' numbers.
pub(super) fn number(
    built: Vec<BuiltService>,
    package: &ServedPackage,
    options: &CatalogOptions,
) -> Result<Vec<Arc<Service>>, String> {
    let directory = &package.home;
    let services = built.into_iter().map(|built| {
        let id = (options.number)(directory.owner, &built.name)
            .map_err(|reason| format!("cannot assign a number to `{}`: {reason}", built.name))?;
        Ok(Arc::new(Service {
            id,
            owner: directory.owner,
            owner_name: directory.owner_name.clone(),
            meter: options
                .engines
                .meters()
                .of(&directory.owner_name, &built.name),
            name: built.name,
            settings: built.settings,
            kind: ServiceKind::Device(built.device),
        }))
    });
    services.collect()
}

/// Applies only the custom precision tokens of a project's settings. Suppressed findings still
/// prevent serving.
struct ProjectTokens(Policy);

impl ProjectPolicy for ProjectTokens {
    fn demands(&self, found: &FoundFile, _: FileLocation<'_>) -> Option<Arc<Requirements>> {
        Some(Arc::new(Requirements {
            extra: self.0.extra_precisions(&found.path),
            ..Requirements::default()
        }))
    }

    fn filter_report(&self, _: &mut Report) {}
}

/// Validates a package. The error has one line per finding.
pub(super) fn validate(package: &ServedPackage) -> Result<(), String> {
    validate_with(package, &ProjectTokens(Policy::nearest()))
}

fn validate_with(package: &ServedPackage, own_tokens: &ProjectTokens) -> Result<(), String> {
    let found = Discovery {
        found: package.configs.clone(),
        ..Discovery::default()
    };
    let options = ValidationOptions {
        paths: Vec::new(),
        precisions: None,
        open_models: true,
        jobs: 1,
    };
    let nothing = BTreeMap::new();
    let outcome =
        validate::validate_with_policy(&found, &nothing, &options, own_tokens, &|_, _| {});
    let outcome = outcome.map_err(|error| error.to_string())?;
    let diagnostics = outcome.report.diagnostics.iter();
    let is_left_out = |it: &Diagnostic| {
        let left_out = package.home.left_out(Path::new(&it.source.path));
        variant_at(&it.pointer).is_some_and(|place| left_out.contains(&place))
    };
    let errors = diagnostics.filter(|it| it.severity == Severity::Error && !is_left_out(it));
    let lines: Vec<String> = errors
        .map(|it| {
            let message = it.message.replace(['\n', '\r'], " ");
            format!(
                "{} {}#{}: {message}",
                it.rule.code, it.source.path, it.pointer
            )
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(lines.join("\n"))
}

/// Returns the names of the services that a package's configs request, even if the package is
/// invalid. `None` stands for a config that does not determine a name.
pub(super) fn names(package: &ServedPackage) -> impl Iterator<Item = Option<String>> {
    package.configs.iter().map(move |found| {
        let document = LoadedFile::read(&found.path).document.ok()?;
        service_name(package, &Config::from_document(&document))
    })
}

/// Returns `model` or `model_size`, or the name of the package's folder.
fn service_name(package: &ServedPackage, config: &Config) -> Option<String> {
    if package.home.named_by_folders {
        let folder = package.key.path.file_name()?.to_str()?;
        return Some(folder.to_owned());
    }
    let Config { model, size, .. } = config;
    let model = model.as_ref()?;
    Some(match size {
        Some(size) => format!("{model}_{size}"),
        None => model.clone(),
    })
}

/// Rejects a name that consists of digits, because it would be read as a service number.
fn reject_number(name: &str, config: &PackageConfig) -> Result<(), String> {
    if !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(());
    }
    Err(format!(
        "{}: invalid service name `{name}`: a name of digits would be read as a service number; \
         give `model` a letter, such as `model-{name}`",
        config.path.display()
    ))
}

/// Checks that two configs of one service have different backends and the same model and size.
fn reject_second(known: &[PackageConfig], second: &PackageConfig) -> Result<(), String> {
    let identity = |it: &PackageConfig| (it.config.model.clone(), it.config.size.clone());
    for first in known {
        let (at, other) = (second.path.display(), first.path.display());
        if first.config.backend == second.config.backend {
            return Err(format!(
                "{at}: same model and backend as {other}; remove one of them"
            ));
        }
        if identity(first) != identity(second) {
            return Err(format!(
                "{at}: same service name as {other}; change `model` or `size` in one of them"
            ));
        }
    }
    Ok(())
}

/// Returns the first list that exists, like validation does.
fn precisions(lists: Vec<PathBuf>) -> PrecisionList {
    let mut lists = lists.into_iter();
    let list = lists.find(|path| path.symlink_metadata().is_ok());
    let document = list.and_then(|path| LoadedFile::read(&path).document.ok());
    document.map_or_else(PrecisionList::embedded, |document| {
        PrecisionList::from_document(&document)
    })
}
