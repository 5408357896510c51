//! `adb:` with the platform's own program, and a stand-in of an Android device. The stand-in speaks the protocol of a
//! device; it is no Android.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{PACKAGE, TestDevice, output_of};
use crate::support::environment::EnvironmentPiece;
use crate::support::files::root;
use crate::support::run::pkgtool;

/// What the device says of itself.
const PROPERTIES: &str = r#"{"ro.product.manufacturer": "Example", "ro.product.model": "Phone 1",
    "ro.soc.manufacturer": "Example", "ro.soc.model": "Chip 9", "ro.build.version.release": "14",
    "ro.build.version.sdk": "34", "ro.product.cpu.abi": "x86_64", "ro.serialno": "0A1B2C"}"#;

/// A connected stand-in.
struct Phone {
    device: TestDevice,
    process: Child,
    adb: PathBuf,
}

impl Drop for Phone {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = Command::new(&self.adb).arg("kill-server").output();
    }
}

impl Phone {
    #[track_caller]
    fn connect(test: &str) -> Option<Self> {
        let program = EnvironmentPiece::Adb.or_skip(test)?;
        let mut device = TestDevice::at(String::new());
        let folder = device.directory.path();
        let properties = folder.join("properties.json");
        fs::write(&properties, PROPERTIES).expect("a file");
        let mut process = Command::new("python3")
            .arg(root().join("tests/device/adbd.py"))
            .arg("--root")
            .arg(folder)
            .arg("--properties")
            .arg(&properties)
            .arg("--until-eof")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut port = String::new();
        let printed = process.stdout.take().expect("it is piped");
        BufReader::new(printed)
            .read_line(&mut port)
            .expect("a line");
        let serial = format!("127.0.0.1:{}", port.trim());
        // A server of its own, which sees no other device.
        let programs = folder.join("programs");
        fs::create_dir(&programs).expect("a folder");
        let adb = programs.join("adb");
        let shown = folder.display();
        let script = format!(
            "#!/bin/sh\nexec env HOME={shown} TMPDIR={shown} ADB_SERVER_SOCKET=localfilesystem:{shown}/adb ADB_USB=0 \
             ADB_EMU=0 ADB_LOCAL_TRANSPORT_MAX_PORT=1 {} \"$@\"\n",
            program.display()
        );
        fs::write(&adb, script).expect("a file");
        fs::set_permissions(&adb, fs::Permissions::from_mode(0o755)).expect("a file");
        let connected = Command::new(&adb).args(["connect", &serial]).output();
        let said = connected.expect("adb runs").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.starts_with("connected to"), "{said}");
        let path = std::env::var("PATH").expect("a path");
        let path = format!("{}:{path}", programs.display());
        device.variables.push(("PATH".to_owned(), path));
        device.on = format!("adb:{serial}");
        Some(Self {
            device,
            process,
            adb,
        })
    }
}

#[test]
fn a_phone_answers_like_this_machine() {
    let Some(phone) = Phone::connect("a_phone_answers_like_this_machine") else {
        return;
    };
    let device = &phone.device;
    let run = [
        "run", PACKAGE, "--input", "random:3", "--engine", "tract", "--json",
    ];
    let there = device.run(&run).expect_code(0);
    let here = pkgtool(run).run().expect_code(0);
    assert_eq!(output_of(&there), output_of(&here));
    // Without a name, all devices that adb lists are described, and the only one is taken.
    let listed = device
        .command(&["devices", "--json"])
        .without("PKGTOOL_ON")
        .run();
    let listed = listed.expect_code(0).json();
    let first = &listed["devices"][0];
    assert_eq!(first["address"], device.on.as_str());
    assert_eq!(first["model"], "Example Phone 1");
    assert_eq!(first["system"], "Android 14 (API 34)");
    let only = device.command(&run).variable("PKGTOOL_ON", "adb").run();
    assert_eq!(output_of(&only.expect_code(0)), output_of(&here));
    device.expect_no_process();
    device.run(&["devices", "clean"]).expect_code(0);
    assert!(!device.place().exists());
}

#[test]
fn a_cable_that_is_pulled_ends_the_run() {
    let Some(mut phone) = Phone::connect("a_cable_that_is_pulled_ends_the_run") else {
        return;
    };
    phone
        .device
        .run(&["run", PACKAGE, "--engine", "tract", "--input", "random:0"])
        .expect_code(0);
    let bench = ["bench", PACKAGE, "--engine", "tract", "--seconds", "60"];
    let mut measuring = phone.device.command(&bench).into_command();
    let measuring = measuring
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let measuring = measuring.expect("it starts");
    std::thread::sleep(std::time::Duration::from_secs(4));
    let input = phone.process.stdin.as_mut().expect("it is piped");
    input.write_all(b"cut\n").expect("it takes commands");
    let ended = measuring.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("the connection to adb:"), "{said}");
    phone.device.expect_no_process();
}

/// Writes what `dumpsys battery` prints: a temperature in tenths of a degree.
fn set_battery(phone: &Phone, tenths: u32) {
    let folder = phone.device.directory.path().join("system/etc");
    fs::create_dir_all(&folder).expect("a folder");
    let text = format!(
        "Current Battery Service state:\n  AC powered: false\n  status: 3\n  level: 81\n  voltage: 4000\n  \
         temperature: {tenths}\n  current now: -250000\n"
    );
    fs::write(folder.join("dumpsys-battery.txt"), text).expect("a file");
}

#[test]
fn a_warm_phone_is_measured_when_it_is_cool() {
    let Some(phone) = Phone::connect("a_warm_phone_is_measured_when_it_is_cool") else {
        return;
    };
    set_battery(&phone, 451);
    let bench = [
        "bench",
        PACKAGE,
        "--engine",
        "tract",
        "--cool",
        "40",
        "--sustained",
        "3s",
        "--json",
        "--html",
    ];
    let page = phone.device.directory.path().join("curves.html");
    let mut measuring = phone.device.command(&bench).into_command();
    let measuring = measuring
        .arg(&page)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(!page.exists(), "it did not wait");
    set_battery(&phone, 305);
    let ended = measuring.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let series = &report["series"][0];
    let points = series["points"].as_array().expect("points");
    assert!((2..=4).contains(&points.len()), "{series}");
    for point in points {
        assert_eq!(point["temperature_c"], 30.5, "{point}");
        assert_eq!(point["battery_current_ma"], 250.0, "{point}");
        assert!(
            point["p50_ms"].as_f64().is_some_and(|time| time > 0.0),
            "{point}"
        );
    }
    assert_eq!(series["hottest_c"], 30.5);
    assert!(
        series["energy_per_run_mj"]
            .as_f64()
            .is_some_and(|energy| energy > 0.0),
        "{series}"
    );
    let html = fs::read_to_string(&page).expect("a page");
    for curve in ["time of a run", "temperature: 30.50", "battery current"] {
        assert!(html.contains(curve), "{html}");
    }
    phone.device.expect_no_process();
}
