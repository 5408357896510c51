//! Tests of the catalog of package directories: the services that it offers, and how it follows
//! changes on disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::{CallError, Catalog, Request};

use super::packages::{
    OWNER, PATIENCE, copy, device, examples, find, names, options, reasons, start, until, zeros,
};
use crate::support::tree::Tree;

/// Copies an example into a directory of packages.
fn add(name: &str, to: &Path) {
    copy(&examples().join(name), &to.join(name));
}

/// Moves a complete directory into place, as an installer does.
fn appear(name: &str, aside: &Tree, packages: &Tree) {
    add(name, aside.root());
    fs::rename(aside.path(name), packages.path(name)).expect("the same file system");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_is_a_service() {
    let catalog = start(&[&examples()]);
    let expected = [
        "glimpse",
        "hush_sentence",
        "jackdaw",
        "kindred",
        "lookout",
        "mosaic_nano",
        "murmur_vad",
        "parlor_tts_82m",
        "pebble_0_6b",
        "pebble_1b",
        "pocket_diffusion",
        "readline_ocr",
        "scribe_tiny_en",
        "spotter_s",
        "twin_view",
        "watercolor",
    ];
    assert_eq!(names(&catalog), expected);
    assert_eq!(reasons(&catalog), []);
    for service in catalog.all().iter() {
        assert_eq!(
            (service.owner, service.owner_name.as_str()),
            (OWNER, "local")
        );
        for name in [service.name.clone(), service.id.to_string()] {
            assert!(Arc::ptr_eq(&find(&catalog, &name), service), "{name}");
        }
        assert!(catalog.find(AccountId(8), &service.name).is_none());
    }
    for unknown in ["", "glimpse_2", "1", "99999999999999999999", "-100"] {
        assert!(catalog.find(OWNER, unknown).is_none(), "{unknown}");
    }
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_come_and_go() {
    let (packages, aside) = (Tree::new(), Tree::new());
    add("murmur-vad", packages.root());
    let catalog = start(&[packages.root()]);
    assert_eq!(names(&catalog), ["murmur_vad"]);
    let first = find(&catalog, "murmur_vad");
    appear("watercolor", &aside, &packages);
    until(&catalog, "it appears", |it| {
        names(it) == ["murmur_vad", "watercolor"]
    })
    .await;
    assert!(
        Arc::ptr_eq(&first, &find(&catalog, "murmur_vad")),
        "unchanged"
    );
    fs::remove_dir_all(packages.path("watercolor")).expect("it is removed");
    until(&catalog, "it goes", |it| names(it) == ["murmur_vad"]).await;
    assert!(
        Arc::ptr_eq(&first, &find(&catalog, "murmur_vad")),
        "unchanged"
    );
    assert_eq!(reasons(&catalog), []);
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_copy_is_not_served() {
    let packages = Tree::new();
    let catalog = start(&[packages.root()]);
    let model = "murmur-vad/qnn/murmur_vad_qnn_fp32.onnx";
    let whole = fs::read(examples().join(model)).expect("an example");
    let aside = Tree::new();
    add("murmur-vad", aside.root());
    fs::write(aside.path(model), &whole[..whole.len() / 2]).expect("half a model");
    fs::rename(aside.path("murmur-vad"), packages.path("murmur-vad")).expect("a move");
    until(&catalog, "it is reported", |it| !reasons(it).is_empty()).await;
    assert_eq!(names(&catalog), [""; 0]);
    let [(name, reason)] = &reasons(&catalog)[..] else {
        panic!("one package")
    };
    assert_eq!(name, "murmur-vad");
    assert!(reason.contains("PKG"), "{reason}");
    fs::write(packages.path(model), &whole).expect("the whole model");
    until(&catalog, "it is whole", |it| names(it) == ["murmur_vad"]).await;
    assert_eq!(reasons(&catalog), []);
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_package_is_swapped() {
    let packages = Tree::new();
    add("murmur-vad", packages.root());
    add("watercolor", packages.root());
    let catalog = start(&[packages.root()]);
    let other = find(&catalog, "watercolor");
    let before = find(&catalog, "murmur_vad");
    let config = packages.path("murmur-vad/qnn/config.json");
    let text = fs::read_to_string(&config).expect("a config");
    let changed = text.replace("\"mit\"", "\"Apache-2.0\"");
    assert_ne!(text, changed, "the example has this licence");
    // Both change, because the description shows the first backend's licence.
    for backend in ["qnn", "xnnpack"] {
        let config = packages.path(&format!("murmur-vad/{backend}/config.json"));
        let text = fs::read_to_string(&config).expect("a config");
        fs::write(&config, text.replace("\"mit\"", "\"Apache-2.0\"")).expect("a new config");
    }
    let licence = |it: &Catalog| {
        let service = it.find(OWNER, "murmur_vad")?;
        device(&service).description().license.clone()
    };
    until(&catalog, "the licence", |it| {
        licence(it).as_deref() == Some("Apache-2.0")
    })
    .await;
    let after = find(&catalog, "murmur_vad");
    assert!(!Arc::ptr_eq(&before, &after));
    assert_eq!(before.id, after.id, "its number lasts");
    assert!(
        Arc::ptr_eq(&other, &find(&catalog, "watercolor")),
        "unchanged"
    );
    // Replacing a model file is noticed just like replacing a config.
    let model = packages.path("murmur-vad/qnn/murmur_vad_qnn_fp32.onnx");
    let bytes = fs::read(&model).expect("a model");
    fs::remove_file(&model).expect("it is removed");
    fs::write(&model, bytes).expect("it is written anew");
    until(&catalog, "the model", |it| {
        it.find(OWNER, "murmur_vad")
            .is_some_and(|now| !Arc::ptr_eq(&now, &after))
    })
    .await;
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_becomes_wrong_is_taken_away() {
    let packages = Tree::new();
    add("murmur-vad", packages.root());
    let catalog = start(&[packages.root()]);
    let service = find(&catalog, "murmur_vad");
    let request = Request {
        body: zeros(device(&service)).to_string().into(),
        ..Request::default()
    };
    let config = packages.path("murmur-vad/qnn/config.json");
    let text = fs::read_to_string(&config).expect("a config");
    fs::write(&config, text.replace("\"fp32\"", "\"fp23\"")).expect("a wrong config");
    until(&catalog, "it is reported", |it| !reasons(it).is_empty()).await;
    assert_eq!(names(&catalog), [""; 0]);
    let reason = &reasons(&catalog)[0].1;
    assert!(
        reason.lines().all(|line| line.starts_with("PKG")),
        "{reason}"
    );
    assert!(reason.contains("fp23"), "{reason}");
    // Callers that still hold the service get an error that it has stopped.
    let stopped = tokio::time::timeout(PATIENCE, async {
        while !matches!(service.prepare(&request).await, Err(CallError::Stopped)) {
            tokio::task::yield_now().await;
        }
    });
    stopped.await.expect("it is drained");
    fs::write(&config, text).expect("the right config");
    until(&catalog, "it is back", |it| names(it) == ["murmur_vad"]).await;
    assert!(!Arc::ptr_eq(&service, &find(&catalog, "murmur_vad")));
    catalog.stop().await;
}

/// The server honours a project's settings: its additional precisions are valid, and ignored rules
/// are still reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_projects_own_precisions_are_served() {
    let packages = Tree::new();
    add("murmur-vad", packages.root());
    let home = packages.path("murmur-vad/xnnpack");
    let config = fs::read_to_string(home.join("config.json")).expect("it was copied");
    let renamed = "murmur_vad_xnnpack_a4w2.pte";
    fs::rename(home.join("murmur_vad_xnnpack_fp32.pte"), home.join(renamed)).expect("it is there");
    let config = config.replace("fp32", "a4w2");
    fs::write(home.join("config.json"), &config).expect("it can be written");

    let settings = packages.path("pkgtool.toml");
    let own = "[extra-precisions]\nnon-quantized = [\"a4w2\"]\n";
    for round in 0..3 {
        fs::write(&settings, own).expect("it can be written");
        let catalog = start(&[packages.root()]);
        assert_eq!(reasons(&catalog), [], "{round}");
        assert_eq!(names(&catalog), ["murmur_vad"], "{round}");
        catalog.stop().await;

        fs::write(&settings, "ignore = [\"precision\", \"file\"]\n").expect("it can be written");
        let catalog = start(&[packages.root()]);
        assert_eq!(names(&catalog), [""; 0], "{round}");
        let reasons = reasons(&catalog);
        assert!(reasons[0].1.contains("a4w2"), "{round}: {reasons:?}");
        catalog.stop().await;
    }

    // A running server notices the changed list when it next scans the packages.
    let catalog = start(&[packages.root()]);
    fs::write(&settings, own).expect("it can be written");
    fs::write(home.join("config.json"), config + "\n").expect("it can be written");
    until(&catalog, "the service", |catalog| {
        names(catalog) == ["murmur_vad"]
    })
    .await;
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_name_is_one_package() {
    let (first, second) = (Tree::new(), Tree::new());
    add("murmur-vad", first.root());
    add("murmur-vad", second.root());
    let catalog = start(&[first.root(), second.root()]);
    assert_eq!(names(&catalog), ["murmur_vad"]);
    let service = find(&catalog, "murmur_vad");
    let unserved = catalog.unserved();
    let [other] = &unserved[..] else {
        panic!("{unserved:?}")
    };
    assert!(other.path.starts_with(second.root()), "{other:?}");
    let named = first.path("murmur-vad").display().to_string();
    assert!(other.reason.contains(&named), "{other:?}");
    fs::remove_dir_all(first.path("murmur-vad")).expect("it is removed");
    until(&catalog, "the other takes over", |it| {
        it.unserved().is_empty()
    })
    .await;
    let successor = find(&catalog, "murmur_vad");
    assert!(!Arc::ptr_eq(&service, &successor));
    // The first package returns and finds its name taken.
    add("murmur-vad", first.root());
    until(&catalog, "the first package is reported", |it| {
        !it.unserved().is_empty()
    })
    .await;
    assert!(Arc::ptr_eq(&successor, &find(&catalog, "murmur_vad")));
    let unserved = catalog.unserved();
    assert!(unserved[0].path.starts_with(first.root()), "{unserved:?}");
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_number_waits_for_one() {
    let packages = Tree::new();
    add("murmur-vad", packages.root());
    let works = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&works);
    let mut options = options(&[packages.root()]);
    options.number = Box::new(move |_, _| {
        let works = asked.load(Ordering::SeqCst);
        works
            .then_some(5)
            .ok_or_else(|| "the database is busy".to_owned())
    });
    let catalog = Catalog::start(options).expect("the directory is there");
    assert_eq!(names(&catalog), [""; 0]);
    assert!(reasons(&catalog)[0].1.contains("the database is busy"));
    works.store(true, Ordering::SeqCst);
    until(&catalog, "it is served", |it| names(it) == ["murmur_vad"]).await;
    assert_eq!(find(&catalog, "5").name, "murmur_vad");
    catalog.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_not_there_is_an_error() {
    let packages = Tree::new();
    let missing = packages.path("missing");
    let error = Catalog::start(options(&[&missing])).expect_err("it is not there");
    assert!(error.contains("missing"), "{error}");
}
