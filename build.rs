//! What is built besides Rust: the library between this crate and ExecuTorch, if that is wanted.

#[cfg(feature = "executorch")]
#[path = "src/engine/executorch/build_shim.rs"]
mod shim;

#[cfg(not(feature = "executorch"))]
mod shim {
    //! Nothing to build.
    pub(crate) fn build() {}
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    shim::build();
}
