//! Routes of the console for packages: what is served and what is not, and the findings in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::super::super::Gateway;
use super::super::super::auth::OperatorCaller;
use super::super::super::error::GatewayError;
use super::super::super::extract::InQuery;
use crate::service::ServiceKind;
use pkgtool_base::diagnostic::Diagnostic;
use pkgtool_check::policy::Policy;
use pkgtool_check::validate::ValidationOptions;

/// Maximum number of findings of an answer.
const MAX_FINDINGS: usize = 500;

/// Maximum length of a line of a file, in characters.
const MAX_LINE_CHARS: usize = 300;

/// A directory with a package, or a config.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct PackagePlace {
    path: String,
    /// The services of its configs, as `ACCOUNT/NAME`.
    services: BTreeSet<String>,
    /// Why it is not served.
    reason: Option<String>,
}

/// The package whose findings are wanted.
#[derive(Debug, Deserialize)]
pub(super) struct FindingsParameters {
    path: String,
}

/// A finding with the line of the file.
#[derive(Debug, Serialize)]
pub(super) struct FindingRow {
    severity: &'static str,
    code: &'static str,
    rule: &'static str,
    message: String,
    help: Option<String>,
    path: String,
    line: usize,
    column: usize,
    text: String,
}

/// Lists the packages, for the operator.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
) -> Result<Json<Vec<PackagePlace>>, GatewayError> {
    Ok(Json(places(&gateway)))
}

fn places(gateway: &Gateway) -> Vec<PackagePlace> {
    let mut served: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for service in gateway.services.all() {
        let ServiceKind::Device(device) = &service.kind else {
            continue;
        };
        for config in device.config_paths() {
            if let Some(directory) = config.parent() {
                let services = served.entry(directory.to_owned()).or_default();
                services.insert(service.label().to_string());
            }
        }
    }
    let served = served.into_iter().map(|(path, services)| PackagePlace {
        path: path.display().to_string(),
        services,
        reason: None,
    });
    let unserved = gateway.services.unserved();
    let unserved = unserved.iter().map(|unserved| PackagePlace {
        path: unserved.path.display().to_string(),
        services: BTreeSet::new(),
        reason: Some(unserved.reason.clone()),
    });
    let mut all: Vec<PackagePlace> = unserved.chain(served).collect();
    all.sort();
    all
}

/// Validates a package of the list, for the operator.
pub(super) async fn findings(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
    InQuery(parameters): InQuery<FindingsParameters>,
) -> Result<Json<Vec<FindingRow>>, GatewayError> {
    let path = parameters.path;
    // Only packages of the list: a client must not read other files by this.
    if places(&gateway).iter().all(|place| place.path != path) {
        return Err(GatewayError::no_entity("package", &path));
    }
    let found = tokio::task::spawn_blocking(move || validate_package(Path::new(&path))).await;
    let found = found.map_err(|error| GatewayError::stopping().because(&error))?;
    found.map(Json).map_err(GatewayError::bad_request)
}

fn validate_package(path: &Path) -> Result<Vec<FindingRow>, String> {
    let policy = Policy::nearest();
    let options = ValidationOptions {
        paths: vec![path.to_owned()],
        precisions: None,
        open_models: true,
        jobs: 1,
    };
    let outcome = policy.validate(&options, &|_, _| {});
    let outcome = outcome.map_err(|error| error.to_string())?;
    let diagnostics = outcome.outcome.report.diagnostics.iter();
    Ok(diagnostics.take(MAX_FINDINGS).map(FindingRow::of).collect())
}

impl FindingRow {
    fn of(diagnostic: &Diagnostic) -> Self {
        let start = diagnostic.start();
        let line = diagnostic
            .source
            .text
            .lines()
            .nth(start.line.saturating_sub(1));
        let line = line.unwrap_or_default().chars().take(MAX_LINE_CHARS);
        Self {
            severity: diagnostic.severity.name(),
            code: diagnostic.rule.code,
            rule: diagnostic.rule.name,
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            path: diagnostic.source.path.clone(),
            line: start.line,
            column: start.column,
            text: line.collect(),
        }
    }
}
