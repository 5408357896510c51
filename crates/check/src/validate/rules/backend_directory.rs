//! Rule `backend-directory`: reports a config whose directory is not named after its backend.

use std::path::Path;

use super::backend_delegate;
use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::{Backend, naming};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// The config's directory is named after its `backend`.
    ///
    /// # Why
    /// Applications find a backend's config by the directory's name. A `coreml` config under
    /// `xnnpack/` is loaded by the wrong runtime.
    ///
    /// # Example
    /// `xnnpack/config.json` with `"backend": "coreml"`.
    ///
    /// # Fix
    /// Correct the field, or rename the directory. `pkgtool fix --unsafe` corrects the field if the
    /// names or the delegates of all models agree with the directory.
    ///
    /// # What it does not see
    /// The rule cannot decide which of the two is right; the model's delegates may show it
    /// (`backend-delegate`). A package that is reachable through a sibling link with the backend's
    /// name is accepted.
    PKG024 "backend-directory" Warning fix Unsafe "The directory is not named after the backend." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(backend) = context.config.as_ref().and_then(|config| config.backend) else {
        return;
    };
    let Some(directory) = context.absolute.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    if directory == backend.name() {
        return;
    }
    let above = context.absolute.parent();
    let is_below = above.and_then(|above| above.file_name()).is_some_and(|name| name == backend.name());
    let home = above.map(|above| above.join(backend.name()));
    let is_taken = home.as_ref().is_some_and(|home| home.symlink_metadata().is_ok());
    // A link with the backend's name leads here, so applications find the package.
    let real = |path: &Path| path.canonicalize().ok();
    if is_taken && real(context.absolute).is_some_and(|here| home.and_then(|home| real(&home)) == Some(here)) {
        return;
    }
    let help = match Backend::from_name(directory) {
        // Moving the package would overwrite the existing one.
        Some(other) if is_taken => format!("write \"backend\": \"{other}\"; `{backend}/` already exists"),
        Some(other) => format!("write \"backend\": \"{other}\", or move the package to `{backend}/`"),
        None if is_below => format!("move the package's files up into `{backend}/`"),
        None if is_taken => {
            format!("`{backend}/` already exists: move the package into another directory, or delete it")
        }
        None => format!("rename the directory to `{backend}`"),
    };
    let path = JsonPath::root().key("backend");
    let fix = Backend::from_name(directory).filter(|other| is_made_for(context, *other, backend));
    let fix = fix.and_then(|other| {
        context.fix(Applicability::Unsafe, &ValueChange::replace(path.clone(), other.name()))
    });
    let anchor = Anchor::Value(path);
    let message = format!("the backend is `{backend}`, but the directory is `{directory}`");
    findings.push(RULE.meta.finding(anchor, message).help(help).fix(fix));
}

/// Returns whether the delegates or the name of each model indicate `other` rather than `backend`.
fn is_made_for(context: &Context<'_>, other: Backend, backend: Backend) -> bool {
    let mut models = context.files.iter().filter(|file| file.is_model).peekable();
    let has = |reference: &str, backend: Backend| {
        let stem = Path::new(reference).file_stem().and_then(|stem| stem.to_str());
        stem.is_some_and(|stem| naming::has_token(stem, backend.name()))
    };
    models.peek().is_some()
        && models.all(|file| {
            let reference = &file.file.reference;
            let by_name = has(reference, other) && !has(reference, backend);
            by_name || file.model_info().is_some_and(|info| backend_delegate::is_delegated_to(info, other, backend))
        })
}
