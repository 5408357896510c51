//! Helpers that create directories of packages to serve, and catalogs of them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pkgtool_engine::tensor::Tensor;
use pkgtool_model::Dim;
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{
    Catalog, CatalogOptions, Device, PackageDirectory, Service, ServiceKind, ServiceSettings,
};
use serde_json::{Value, json};

/// Publisher of all packages here.
pub(super) const OWNER: AccountId = AccountId(7);

/// Maximum time until a change is noticed; only a failing test waits this long.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples")
}

pub(super) fn engines() -> Arc<Engines> {
    Engines::new(env!("CARGO_BIN_EXE_pkgtool").into(), 1 << 30, None)
}

/// Returns options for these directories, all with the same owner and with service numbers from
/// 100.
pub(super) fn options(directories: &[&Path]) -> CatalogOptions {
    let numbers: Mutex<HashMap<String, i64>> = Mutex::default();
    let number = move |owner: AccountId, name: &str| {
        assert_eq!(owner, OWNER);
        let mut numbers = numbers.lock().expect("no test panics with it");
        let next = 100 + i64::try_from(numbers.len()).expect("a few");
        Ok(*numbers.entry(name.to_owned()).or_insert(next))
    };
    let directory = |path: &&Path| PackageDirectory {
        path: path.to_path_buf(),
        owner: OWNER,
        owner_name: "local".to_owned(),
        named_by_folders: false,
        left_out: Vec::new(),
    };
    CatalogOptions {
        directories: directories.iter().map(directory).collect(),
        settings: Box::new(|_, _| ServiceSettings::default()),
        number: Box::new(number),
        engines: engines(),
        attached: None,
    }
}

pub(super) fn start(directories: &[&Path]) -> Arc<Catalog> {
    Catalog::start(options(directories)).expect("the directories are there")
}

/// Waits until `condition` holds for the catalog.
pub(super) async fn until(catalog: &Catalog, what: &str, condition: impl Fn(&Catalog) -> bool) {
    let mut changes = catalog.changes();
    let reached = tokio::time::timeout(PATIENCE, async {
        loop {
            changes.borrow_and_update();
            if condition(catalog) {
                return;
            }
            changes.changed().await.expect("the catalog lives");
        }
    });
    let names = names(catalog);
    let error = format!("not reached: {what}; before it: {names:?}");
    reached.await.expect(&error);
}

pub(super) fn names(catalog: &Catalog) -> Vec<String> {
    catalog.all().iter().map(|it| it.name.clone()).collect()
}

/// Returns why packages are not served, by the last component of their path.
pub(super) fn reasons(catalog: &Catalog) -> Vec<(String, String)> {
    let unserved = catalog.unserved();
    let reasons = unserved.iter().map(|it| {
        let name = it.path.file_name().expect("a directory has a name");
        (name.to_string_lossy().into_owned(), it.reason.clone())
    });
    reasons.collect()
}

pub(super) fn find(catalog: &Catalog, name: &str) -> Arc<Service> {
    let service = catalog.find(OWNER, name);
    service.unwrap_or_else(|| panic!("no {name} in {:?}", names(catalog)))
}

pub(super) fn device(service: &Service) -> &Device {
    match &service.kind {
        ServiceKind::Device(device) => device,
        ServiceKind::Proxy(_) | ServiceKind::Attached(_) | ServiceKind::Untrained(_) => {
            panic!("expected a package, got another service")
        }
    }
}

/// Returns a matching input of zeros.
pub(super) fn zeros(device: &Device) -> Value {
    let methods = &device.description().signatures;
    let method = methods.iter().find(|method| method.not_runnable.is_none());
    let inputs = method.expect("it runs here").inputs.iter().map(|input| {
        let dims = input.dims.as_ref().expect("examples say their ranks");
        let sizes = dims.iter().map(|dim| match dim {
            Dim::Fixed(size) => *size,
            Dim::Maybe { bound, .. } => *bound,
            Dim::Dynamic { .. } => 1,
        });
        let shape: Vec<u64> = sizes.collect();
        let tensor = Tensor::zeros(input.dtype, shape.clone()).expect("it is small");
        let data = vec![0; tensor.len()];
        json!({"name": input.name, "shape": shape, "dtype": input.dtype.name(), "data": data})
    });
    json!({ "inputs": inputs.collect::<Vec<_>>() })
}

/// Copies a directory.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("it can be listed") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            // `fs::copy` would also copy the examples' read-only mode, and the copies must be
            // writable.
            let bytes = fs::read(entry.path()).expect("an example");
            fs::write(target, bytes).expect("a copy");
        }
    }
}
