//! The distribution packages: the Python package, the npm packages and the GitHub action.
//!
//! The tests install the packages over the binary of this build, run the action's script, and check
//! that all places name the same version.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::environment::say;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pkgtool");
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns true if a program is installed; otherwise prints that the test is skipped.
fn is_there(program: &str, test: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        say(&format!("SKIPPED {test}: {program} is missing"));
    }
    found
}

/// Returns the names of the binaries for devices, by the targets in the source.
fn device_binaries() -> Vec<String> {
    let source = root().join("crates/engine/src/runtime/device/install.rs");
    let source = fs::read_to_string(source).expect("the source");
    let targets = source
        .split('"')
        .filter(|text| text.contains("-linux-musl"));
    let names: Vec<String> = targets.map(|target| format!("pkgtool-{target}")).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    names
}

#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let ran = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}\n{said}\n{complained}");
    ran
}

#[test]
fn the_python_package_does_what_it_says() {
    if !is_there("python3", "the_python_package_does_what_it_says") {
        return;
    }
    let ran = succeed(
        Command::new("python3")
            .arg(root().join("tests/python/test_package.py"))
            .env("PYTHONPATH", root().join("packaging/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PKGTOOL_BIN", PROGRAM),
    );
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(told.contains("\nRan ") && told.contains("\nOK"), "{told}");
}

#[test]
fn base_images_are_named_by_digest() {
    let file = root().join("packaging/Containerfile");
    let text = fs::read_to_string(file).expect("the container file");
    let bases: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("FROM "))
        .collect();
    assert!(bases.len() > 1, "{bases:?}");
    for base in bases {
        let (_, digest) = base.split_once("@sha256:").expect(base);
        assert_eq!(digest.split(' ').next().map(str::len), Some(64), "{base}");
    }
}

#[cfg(unix)]
#[test]
fn a_locked_crate_with_a_known_weakness_is_an_error() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let directory = tempfile::tempdir().expect("a directory");
    let check = |text: &str| {
        let file = directory.path().join("Cargo.lock");
        fs::write(&file, text).expect("a file");
        let ran = Command::new(root().join(".ci/advisories"))
            .arg(&file)
            .output();
        let ran = ran.expect("the script runs");
        (
            ran.status.code(),
            String::from_utf8_lossy(&ran.stderr).into_owned(),
        )
    };
    assert_eq!(check(&lock), (Some(0), String::new()));
    let weak = "[[package]]\nname = \"rustls-webpki\"\nversion = ";
    for (version, affected) in [
        ("0.103.12", true),
        ("0.103.13", false),
        ("0.104.0-alpha.1", true),
        ("0.104.0-alpha.7", false),
        ("0.104.0", false),
    ] {
        let (code, errors) = check(&format!("{weak}\"{version}\"\n"));
        assert_eq!(code, Some(i32::from(affected)), "{version}: {errors}");
        assert_eq!(errors.contains("RUSTSEC-2026-0104"), affected, "{errors}");
    }
}

#[test]
fn every_place_names_one_version() {
    if !is_there("python3", "every_place_names_one_version") {
        return;
    }
    let check = root().join("packaging/check-version");
    succeed(Command::new("python3").arg(&check));
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    succeed(Command::new("python3").arg(&check).arg(tag));
    let other = Command::new("python3").arg(&check).arg("v0.0.0").output();
    assert_eq!(other.expect("python3 runs").status.code(), Some(1));
}

/// The archive names of a release match the `cargo binstall` metadata in `Cargo.toml`.
#[test]
fn binstall_looks_for_what_is_released() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let script = fs::read_to_string(root().join("packaging/pack-release")).expect("the script");
    assert!(manifest.contains(
        "/releases/download/v{ version }/pkgtool-{ version }-{ target }{ archive-suffix }"
    ));
    assert!(manifest.contains("bin-dir = \"pkgtool-{ version }-{ target }/{ bin }"));
    assert!(script.contains("name = f\"pkgtool-{version}-{target}\""));
    assert!(script.contains("f\"{name}.tar.gz\"") && script.contains("f\"{name}/{file}\""));
}

#[test]
fn every_place_names_the_targets_of_devices() {
    for place in [
        ".github/workflows/release.yml",
        "packaging/build-static",
        "packaging/build-wheels",
        "packaging/npm/build.mjs",
        "packaging/pack-release",
    ] {
        let text = fs::read_to_string(root().join(place)).expect(place);
        for name in device_binaries() {
            let target = name.strip_prefix("pkgtool-").expect("a target");
            assert!(text.contains(target), "{place} lacks {target}");
        }
    }
}

/// Writes a wheel that has these programs, which contain their names.
fn write_wheel(path: &Path, programs: &[String]) {
    let mut wheel = zip::ZipWriter::new(fs::File::create(path).expect("a file"));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let scripts = programs
        .iter()
        .map(|name| format!("pkgtool-{VERSION}.data/scripts/{name}"));
    let bill = format!("pkgtool-{VERSION}.dist-info/sboms/pkgtool.cyclonedx.json");
    for name in scripts.chain([bill]) {
        wheel.start_file(&name, stored).expect("an entry");
        wheel.write_all(name.as_bytes()).expect("an entry");
    }
    wheel.finish().expect("an archive");
}

#[test]
fn an_archive_of_a_release_has_the_binaries_for_devices() {
    const TEST: &str = "an_archive_of_a_release_has_the_binaries_for_devices";
    if !is_there("python3", TEST) || !is_there("tar", TEST) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let wheels = place.join("wheels");
    fs::create_dir(&wheels).expect("a directory");
    let wheel = wheels.join(format!(
        "pkgtool-{VERSION}-py3-none-manylinux_2_28_x86_64.whl"
    ));
    let pack = |out: &Path| {
        let mut command = Command::new("python3");
        command.arg(root().join("packaging/pack-release"));
        command.arg(&wheels).arg(out);
        command
    };
    let mut programs = device_binaries();
    programs.push("pkgtool".to_owned());
    write_wheel(&wheel, &programs);
    let out = place.join("out");
    succeed(&mut pack(&out));
    let name = format!("pkgtool-{VERSION}-x86_64-unknown-linux-gnu");
    let listed = succeed(
        Command::new("tar")
            .arg("-tzf")
            .arg(out.join(format!("{name}.tar.gz"))),
    );
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for program in &programs {
        let entry = format!("{name}/{program}");
        assert!(listed.lines().any(|line| line == entry), "{listed}");
    }
    let missing = programs.remove(0);
    assert!(out.join("binaries/devices").join(&missing).is_file());
    write_wheel(&wheel, &programs);
    let refused = pack(&place.join("again")).output().expect("python3 runs");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(&missing), "{said}");
}

/// The npm packages start the binary when they are installed into a project from npm's archives.
#[cfg(target_os = "linux")]
#[test]
fn the_npm_packages_start_the_binary() {
    const TEST: &str = "the_npm_packages_start_the_binary";
    if !is_there("node", TEST) || !is_there("npm", TEST) {
        return;
    }
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux-x64",
        "aarch64" => "linux-arm64",
        other => {
            say(&format!("SKIPPED {TEST}: no package for {other}"));
            return;
        }
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let build = root().join("packaging/npm/build.mjs");
    let devices = place.join("devices");
    fs::create_dir(&devices).expect("a directory");
    for name in device_binaries() {
        fs::write(devices.join(&name), &name).expect("a file");
    }
    let node = || Command::new("node");
    succeed(
        node()
            .arg(&build)
            .arg(place.join("npm"))
            .arg(format!("devices={}", devices.display()))
            .arg(format!("{platform}={PROGRAM}")),
    );
    let npm = |directory: &Path, arguments: &[&str]| {
        let mut command = Command::new("npm");
        command
            .args(arguments)
            .args(["--offline", "--no-audit", "--no-fund"]);
        command.current_dir(directory);
        command.env("npm_config_cache", place.join("cache"));
        command
    };
    let packages = ["pkgtool", platform];
    for package in packages {
        succeed(&mut npm(
            &place.join("npm"),
            &["pack", &format!("./{package}")],
        ));
    }
    let project = place.join("project");
    fs::create_dir(&project).expect("a directory");
    fs::write(project.join("package.json"), "{}").expect("a file");
    let tarballs = [
        format!("../npm/pkgtool-{platform}-{VERSION}.tgz"),
        format!("../npm/pkgtool-{VERSION}.tgz"),
    ];
    succeed(&mut npm(&project, &["install", &tarballs[0], &tarballs[1]]));
    let command = project.join("node_modules/.bin/pkgtool");
    let run = |arguments: &[&str]| {
        let mut tool = Command::new(&command);
        tool.args(arguments)
            .current_dir(root())
            .env_remove("PKGTOOL_BIN");
        tool
    };
    let told = succeed(run(&["-V"]).env("PATH", std::env::var("PATH").expect("a PATH")));
    assert_eq!(
        String::from_utf8_lossy(&told.stdout),
        format!("pkgtool {VERSION}\n")
    );
    // Exit code and both streams equal those of the binary.
    let same = ["validate", "--color", "never", "tests/fixtures/readme"];
    let direct = Command::new(PROGRAM)
        .args(same)
        .current_dir(root())
        .output();
    assert_eq!(run(&same).output().ok(), direct.ok());
    // The binary looks for those of devices beside itself.
    let beside = project.join("node_modules/@pkgtool").join(platform);
    for name in device_binaries() {
        assert!(beside.join(&name).is_file(), "{name}");
    }
    let missing = run(&["-V"]).env("PKGTOOL_BIN", "no/such/binary").output();
    let missing = missing.expect("node runs");
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    fs::remove_dir_all(project.join("node_modules/@pkgtool")).expect("the platform's package");
    let missing = run(&["-V"]).output().expect("node runs");
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("is not installed"), "{said}");
}

/// Runs the action's script with a fake pip that copies the binary of this build.
#[cfg(unix)]
#[test]
fn the_action_passes_its_inputs_on() {
    use std::os::unix::fs::PermissionsExt;

    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let bin = place.join("bin");
    fs::create_dir(&bin).expect("a directory");
    let python = bin.join("python3");
    let pip = format!(
        "#!/usr/bin/env bash\nset -e\nwhile [ \"$1\" != --target ]; do shift; done\n[ \"$3\" = pkgtool-validate=={VERSION} ]\n\
         mkdir -p \"$2/bin\"\nln -s '{PROGRAM}' \"$2/bin/pkgtool\"\necho installed\n"
    );
    fs::write(&python, pip).expect("a script");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("the mode is set");
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").expect("a PATH")
    );
    let sarif = place.join("out.sarif");
    let run = |version: &str, paths: &str, arguments: &str, sarif: &str| {
        Command::new(root().join("packaging/action/validate"))
            .current_dir(root().join("tests/fixtures"))
            .env("PATH", &path)
            .env("RUNNER_TEMP", place)
            .env("GITHUB_PATH", place.join("path"))
            .env("GITHUB_WORKSPACE", root())
            .env("VERSION", version)
            .env("PATHS", paths)
            .env("FORMAT", "github")
            .env("ARGS", arguments)
            .env("SARIF", sarif)
            .output()
            .expect("bash runs")
    };
    let text = |ran: &Output| String::from_utf8_lossy(&ran.stdout).into_owned();
    let sarif_path = sarif.to_str().expect("a path in UTF-8");
    let found = run(VERSION, "readme-json\nreadme\n", "", sarif_path);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(text(&found).starts_with("installed\n"), "{found:?}");
    assert!(text(&found).contains("::error file="), "{found:?}");
    assert!(sarif.is_file());
    // The script installs the tool once. It passes on each line of arguments as one argument,
    // whatever it contains.
    let quiet = run(
        VERSION,
        "readme-json",
        "--no-model\n--root\na b; exit 9",
        "",
    );
    assert_eq!(quiet.status.code(), Some(0), "{quiet:?}");
    assert!(!text(&quiet).contains("installed"), "{quiet:?}");
    for version in ["", "latest", "0.1.0 --index-url x", "../0.1.0"] {
        let refused = run(version, "readme-json", "", "");
        assert_eq!(refused.status.code(), Some(2), "{version}: {refused:?}");
        assert!(
            text(&refused).contains("::error::version is"),
            "{refused:?}"
        );
    }
    let added = fs::read_to_string(place.join("path")).expect("the path that is added");
    assert_eq!(
        PathBuf::from(added.lines().next().expect("a line")),
        place.join(format!("pkgtool-{VERSION}/bin"))
    );
}
