//! Build script: records the Git commit for `pkgtool --version`.

#[path = "src/cli/build_commit.rs"]
mod commit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    commit::set_version_variable();
    let is =
        |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    // Tests start thousands of processes, each of which would move the addresses of a large binary.
    if is("PROFILE", "debug")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
