//! Build script: compiles the C++ shim for ExecuTorch if that feature is enabled, and records the
//! Git commit for `pkgtool --version`.

#[cfg(feature = "executorch")]
#[path = "src/engine/executorch/build_shim.rs"]
mod shim;

#[cfg(not(feature = "executorch"))]
mod shim {
    //! Stand-in without the `executorch` feature; builds nothing.
    pub(crate) fn build() {}
}

#[path = "src/cli/build_commit.rs"]
mod commit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    shim::build();
    commit::set_version_variable();
}
