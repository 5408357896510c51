//! What is built besides Rust: the library between this crate and ExecuTorch, if that is wanted; and
//! from which commit the binary is, for `pkgtool --version`.

#[cfg(feature = "executorch")]
#[path = "src/engine/executorch/build_shim.rs"]
mod shim;

#[cfg(not(feature = "executorch"))]
mod shim {
    //! Nothing to build.
    pub(crate) fn build() {}
}

#[path = "src/cli/build_commit.rs"]
mod commit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    shim::build();
    commit::tell();
}
