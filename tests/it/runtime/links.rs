//! Models behind symbolic links, as in the cache of a model hub.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

/// A model of an example package, and its external data.
const FOLDER: &str = "packages-examples/parlor-tts/82m/xnnpack";
const MODEL: &str = "parlor_tts_82m_xnnpack_fp32.onnx";
const DATA: &str = "parlor_tts_82m_xnnpack_fp32.onnx.data";

fn run(model: &Path) -> Ran {
    let model = model.to_str().expect("UTF-8");
    let run = [
        "run", model, "--engine", "tract", "--input", "ones", "--json",
    ];
    pkgtool(run).run()
}

/// Puts a file below a name of its own, with a link of the model's folder.
fn put(tree: &Tree, file: &str, place: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let place = tree.path(place);
    fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
    fs::copy(folder.join(file), &place).expect("a copy");
    let snapshot = tree.path("snapshots/1");
    fs::create_dir_all(&snapshot).expect("a folder");
    symlink(&place, snapshot.join(file)).expect("a link");
}

#[test]
fn external_data_is_found_beside_the_real_model() {
    let tree = Tree::new();
    put(&tree, MODEL, "blobs/0a");
    put(&tree, DATA, "blobs/0b");
    let linked = run(&tree.path("snapshots/1").join(MODEL)).expect_code(0);
    let direct = run(&Path::new(FOLDER).join(MODEL)).expect_code(0);
    assert_eq!(linked.json()["outputs"], direct.json()["outputs"]);
}

#[test]
fn external_data_elsewhere_is_not_read() {
    let tree = Tree::new();
    put(&tree, MODEL, "blobs/0a");
    put(&tree, DATA, "secrets/0b");
    let linked = run(&tree.path("snapshots/1").join(MODEL));
    linked
        .expect_code(2)
        .expect_error("a link out of its own directory");
}
