//! The services of packages on this machine, without a gateway and its database.

use std::path::PathBuf;
use std::sync::Arc;

use super::exit::Failure;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{Catalog, CatalogOptions, PackageDirectory, ServiceSettings};

/// The account that owns all services.
pub(super) const OWNER: AccountId = AccountId(0);

/// Returns the engines of this machine.
pub(super) fn engines(ort_lib: Option<PathBuf>) -> Result<Arc<Engines>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("cannot find the pkgtool binary: {error}")))?;
    let budget = Machine::this().memory_bytes / 2;
    Ok(Engines::new(program, budget, ort_lib))
}

/// Returns the services of the packages below these directories. Must be called on a tokio runtime.
pub(super) fn start(paths: &[PathBuf], engines: &Arc<Engines>) -> Result<Arc<Catalog>, Failure> {
    if let Some(missing) = paths.iter().find(|path| !path.is_dir()) {
        let shown = missing.display();
        return Err(Failure::Nothing(format!("{shown}: no such directory")));
    }
    open(paths, engines).map_err(Failure::Other)
}

/// Returns the services of the packages below these existing directories. Must be called on a tokio runtime.
pub(super) fn open(paths: &[PathBuf], engines: &Arc<Engines>) -> Result<Arc<Catalog>, String> {
    let directories = paths.iter().map(|path| PackageDirectory {
        path: path.clone(),
        owner: OWNER,
        owner_name: "local".to_owned(),
        named_by_folders: false,
        left_out: Vec::new(),
    });
    Catalog::start(CatalogOptions {
        directories: directories.collect(),
        settings: Box::new(|_, _| ServiceSettings::default()),
        number: Box::new(|_, _| Ok(0)),
        engines: Arc::clone(engines),
        attached: None,
    })
}
