//! Build script: compiles the C++ shim for ExecuTorch if that feature is enabled.

#[cfg(feature = "executorch")]
mod build_shim;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "executorch")]
    build_shim::build();
}
