//! Build script: records the Git commit for `pkgtool --version`.

#[path = "src/cli/build_commit.rs"]
mod commit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    commit::set_version_variable();
}
