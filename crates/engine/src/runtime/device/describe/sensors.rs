//! Finds a device's sensors and reads its temperature, frequencies and battery.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::battery::{battery, read_battery};
use super::cores::{CPU, clusters};
use super::files::{ENTRY_LIMIT, numbered, read_line, read_number};
use super::reading::{SensorReading, TemperatureScale, celsius};

/// The part whose temperature a sensor gives, the best kind first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SensorKind {
    Processor,
    Battery,
    Other,
}

/// A file that holds a temperature.
#[derive(Debug, Clone)]
struct Probe {
    name: String,
    path: PathBuf,
    kind: SensorKind,
    scale: TemperatureScale,
}

impl Probe {
    fn new(name: String, path: PathBuf) -> Option<Self> {
        let kind = kind(&name)?;
        // Qualcomm's zone `soc` holds the missing charge of the battery in percent.
        let scale = if name.eq_ignore_ascii_case("soc") {
            TemperatureScale::Thousandths
        } else {
            TemperatureScale::Guess
        };
        Some(Self {
            name,
            path,
            kind,
            scale,
        })
    }

    fn read(&self) -> Option<f64> {
        celsius(read_number(&self.path)?, self.scale)
    }
}

/// The sensors of a device, found once and read many times.
#[derive(Debug, Clone, Default)]
pub struct Sensors {
    probes: Vec<Probe>,
    /// The files with the current frequencies of each cluster.
    frequencies: Vec<Vec<PathBuf>>,
    battery: Option<PathBuf>,
}

impl Sensors {
    /// Returns the sensors of the device whose files are below `root`.
    ///
    /// The temperature is the hottest of the processor's sensors that give a value.
    /// Without one it is the battery's, and without that the hottest of all others.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let mut probes = probes(root);
        let readable: Vec<_> = probes
            .iter()
            .filter(|probe| probe.read().is_some())
            .map(|probe| probe.kind)
            .collect();
        let kind = [
            SensorKind::Processor,
            SensorKind::Battery,
            SensorKind::Other,
        ]
        .into_iter()
        .find(|kind| readable.contains(kind));
        probes.retain(|probe| Some(probe.kind) == kind);
        Self::with_probes(root, probes)
    }

    /// Returns the device's sensors with the temperature from the sensor `name` alone.
    ///
    /// `name` is a zone's type, a driver's name, or a driver's name and a label.
    /// When several sensors have the name, the hottest counts.
    /// Returns nothing when no sensor has the name.
    #[must_use]
    pub fn find_named(root: &Path, name: &str) -> Option<Self> {
        let matches = |full: &str| {
            let rest = full
                .get(..name.len())
                .filter(|start| start.eq_ignore_ascii_case(name) && !name.is_empty());
            rest.is_some() && (full.len() == name.len() || full[name.len()..].starts_with(": "))
        };
        let mut probes = probes(root);
        probes.retain(|probe| matches(&probe.name));
        (!probes.is_empty()).then(|| Self::with_probes(root, probes))
    }

    /// Returns the names of all temperature sensors of the device below `root`.
    #[must_use]
    pub fn names(root: &Path) -> Vec<String> {
        let names: BTreeSet<_> = probes(root).into_iter().map(|probe| probe.name).collect();
        names.into_iter().collect()
    }

    fn with_probes(root: &Path, probes: Vec<Probe>) -> Self {
        Self {
            probes,
            frequencies: frequencies(root),
            battery: battery(root),
        }
    }

    /// Returns the values of the sensors at this moment.
    #[must_use]
    pub fn read(&self) -> SensorReading {
        let hottest = self
            .probes
            .iter()
            .filter_map(|probe| Some((probe.read()?, &probe.name)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let highest = |files: &Vec<PathBuf>| {
            let values = files.iter().filter_map(|file| read_number::<u64>(file));
            values.filter(|khz| *khz > 0).max()
        };
        let mut reading = SensorReading {
            temperature_c: hottest.map(|(temperature, _)| temperature),
            sensor: hottest.map(|(_, name)| name.clone()),
            khz: self.frequencies.iter().map(highest).collect(),
            ..SensorReading::default()
        };
        if let Some(battery) = &self.battery {
            read_battery(battery, &mut reading);
        }
        reading
    }
}

/// Returns all temperature sensors of the device.
fn probes(root: &Path) -> Vec<Probe> {
    let mut probes = Vec::new();
    let thermal = root.join("sys/class/thermal");
    for zone in numbered(&thermal, "thermal_zone", "") {
        let zone = thermal.join(format!("thermal_zone{zone}"));
        if let Some(name) = read_line(&zone.join("type")) {
            probes.extend(Probe::new(name, zone.join("temp")));
        }
    }
    // The kernel shows a zone under hwmon again, with other separators in its name.
    let plain = |name: &str| name.replace('-', "_");
    let zones: BTreeSet<_> = probes.iter().map(|probe| plain(&probe.name)).collect();
    let monitors = root.join("sys/class/hwmon");
    for monitor in numbered(&monitors, "hwmon", "") {
        let monitor = monitors.join(format!("hwmon{monitor}"));
        match read_line(&monitor.join("name")) {
            Some(driver) if !zones.contains(&plain(&driver)) => {
                probes.extend(monitor_probes(&monitor, &driver));
            }
            _ => {}
        }
        if probes.len() >= ENTRY_LIMIT {
            break;
        }
    }
    probes.truncate(ENTRY_LIMIT);
    if let Some(battery) = battery(root) {
        let path = battery.join("temp");
        let name = battery.file_name().map(|name| name.to_string_lossy());
        probes.extend(name.filter(|_| path.exists()).map(|name| Probe {
            name: name.into_owned(),
            path,
            kind: SensorKind::Battery,
            scale: TemperatureScale::Tenths,
        }));
    }
    probes
}

/// Returns the temperature sensors of one driver.
fn monitor_probes(monitor: &Path, driver: &str) -> Vec<Probe> {
    let numbers = numbered(monitor, "temp", "_input");
    let labelled = numbers.into_iter().map(|number| {
        let label = read_line(&monitor.join(format!("temp{number}_label")));
        (monitor.join(format!("temp{number}_input")), label)
    });
    let mut labelled: Vec<_> = labelled.collect();
    // AMD's `Tctl` may lie above the true temperature `Tdie` by a fixed amount.
    if labelled
        .iter()
        .any(|(_, label)| label.as_deref() == Some("Tdie"))
    {
        labelled.retain(|(_, label)| label.as_deref() != Some("Tctl"));
    }
    let probes = labelled
        .into_iter()
        .filter_map(|(path, label)| match label {
            Some(label) => Probe::new(format!("{driver}: {label}"), path),
            None => Probe::new(driver.to_owned(), path),
        });
    probes.collect()
}

/// Returns what a sensor of this name measures, or nothing when it is no temperature.
fn kind(name: &str) -> Option<SensorKind> {
    const FOREIGN: [&str; 10] = [
        "socd", "bcl", "ibat", "vbat", "vph", "ocp", "smpl", "vdroop", "uvlo", "batoilo",
    ];
    const BATTERY: [&str; 4] = ["battery", "batt", "bat", "bms"];
    const OUTSIDE: [&str; 2] = ["skin", "virtual"];
    const PROCESSOR: [&str; 21] = [
        "cpu",
        "cpuss",
        "cpucl",
        "mtktscpu",
        "tcpu",
        "soc",
        "apc",
        "big",
        "mid",
        "little",
        "bigcore",
        "littlecore",
        "cluster",
        "tsens",
        "coretemp",
        "k10temp",
        "zenpower",
        "bcm",
        "pkg",
        "package",
        "tj",
    ];
    let name = name.to_lowercase();
    let words: Vec<_> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()))
        .collect();
    let any = |list: &[&str]| words.iter().any(|word| list.contains(word));
    if any(&FOREIGN) {
        None
    } else if any(&BATTERY) {
        Some(SensorKind::Battery)
    } else if any(&PROCESSOR) && !any(&OUTSIDE) {
        Some(SensorKind::Processor)
    } else {
        Some(SensorKind::Other)
    }
}

/// Returns the files with the current frequencies of each cluster.
///
/// Cores that change their frequency together share one file.
fn frequencies(root: &Path) -> Vec<Vec<PathBuf>> {
    let files = |cores: Vec<u32>| {
        let paths = cores.into_iter().map(|core| {
            let policy = format!("{CPU}/cpu{core}/cpufreq");
            let policy = root.join(policy);
            let policy = fs::canonicalize(&policy).unwrap_or(policy);
            policy.join("scaling_cur_freq")
        });
        let paths: BTreeSet<_> = paths.collect();
        paths.into_iter().collect()
    };
    let clusters = clusters(root).into_iter();
    clusters.map(|cluster| files(cluster.cores)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::battery::battery_from_dumpsys;
    use super::super::trees::{
        Tree, near, noise, pixel_8, raspberry_pi_5, snapdragon_8_gen_2, supply,
    };
    use super::*;

    fn zones(tree: &Tree, zones: &[(&str, &str)]) {
        for (number, (name, temperature)) in zones.iter().enumerate() {
            let zone = format!("sys/class/thermal/thermal_zone{number}");
            tree.file(&format!("{zone}/type"), format!("{name}\n"));
            tree.file(&format!("{zone}/temp"), format!("{temperature}\n"));
        }
    }

    fn read(tree: &Tree) -> SensorReading {
        Sensors::find(tree.root()).read()
    }

    /// Returns the temperature and the sensor of the zones.
    fn temperature(list: &[(&str, &str)]) -> Option<(f64, String)> {
        let tree = Tree::new(&[]);
        zones(&tree, list);
        let reading = read(&tree);
        Some((reading.temperature_c?, reading.sensor?))
    }

    #[test]
    fn a_pixel_8_gives_everything() {
        let tree = pixel_8();
        let list = [
            ("BIG", "61000"),
            ("MID", "55000"),
            ("LITTLE", "52000"),
            ("G3D", "73000"),
            ("ocp_cpu1", "99000"),
            ("soc_therm", "41234"),
            ("battery", "31200"),
        ];
        zones(&tree, &list);
        supply(&tree, "usb", &[("type", "USB")]);
        supply(
            &tree,
            "battery",
            &[
                ("type", "Battery"),
                ("capacity", "87"),
                ("status", "Discharging"),
                ("current_now", "-512500"),
                ("voltage_now", "4100000"),
            ],
        );
        let sensors = Sensors::find(tree.root());
        let reading = sensors.read();
        assert_eq!(reading.temperature_c, Some(61.0));
        assert_eq!(reading.sensor.as_deref(), Some("BIG"));
        let khz = [Some(1_328_000), Some(1_836_000), Some(2_914_000)];
        assert_eq!(reading.khz, khz);
        assert_eq!(reading.battery_percent, Some(87));
        assert_eq!(reading.battery_charging, Some(false));
        assert!(near(reading.battery_current_ma, 512.5));
        assert!(near(reading.battery_volts, 4.1));
        assert!(near(reading.power_mw, 512.5 * 4.1));
        let json = serde_json::to_string(&reading).expect("a reading becomes JSON");
        let back: SensorReading = serde_json::from_str(&json).expect("the JSON is a reading's");
        assert_eq!(back, reading);

        zones(&tree, &[("BIG", "0"), ("MID", "56000")]);
        assert_eq!(sensors.read().sensor.as_deref(), Some("MID"));
        let named = Sensors::find_named(tree.root(), "g3d").expect("the zone has the name");
        assert_eq!(named.read().temperature_c, Some(73.0));
        assert!(Sensors::find_named(tree.root(), "NPU").is_none());
        assert!(Sensors::find_named(tree.root(), "").is_none());
        assert!(Sensors::names(tree.root()).contains(&"soc_therm".to_owned()));
    }

    #[test]
    fn a_snapdragon_charges_and_its_charge_is_no_temperature() {
        let tree = snapdragon_8_gen_2();
        let list = [
            ("cpu-0-0-0", "43100"),
            ("cpuss-0", "44500"),
            ("gpuss-0", "60000"),
            ("soc", "90"),
            ("pm8550-bcl-lvl0", "0"),
        ];
        zones(&tree, &list);
        supply(
            &tree,
            "battery",
            &[
                ("type", "Battery"),
                ("status", "Charging"),
                ("current_now", "1250000"),
                ("voltage_now", "4312"),
            ],
        );
        let reading = read(&tree);
        assert_eq!(reading.temperature_c, Some(44.5));
        assert_eq!(reading.sensor.as_deref(), Some("cpuss-0"));
        assert_eq!(reading.khz[1..3], [Some(499_200), Some(614_400)]);
        assert_eq!(reading.battery_charging, Some(true));
        assert_eq!(reading.battery_current_ma, Some(-1250.0));
        assert!(near(reading.battery_volts, 4.312));
        assert_eq!(reading.power_mw, None);
    }

    #[test]
    fn a_raspberry_pi_5_has_one_sensor() {
        let tree = raspberry_pi_5();
        zones(&tree, &[("cpu-thermal", "47400")]);
        tree.file("sys/class/hwmon/hwmon0/name", "cpu_thermal\n");
        tree.file("sys/class/hwmon/hwmon0/temp1_input", "47400\n");
        tree.file("sys/class/hwmon/hwmon2/name", "rp1_adc\n");
        tree.file("sys/class/hwmon/hwmon2/temp1_input", "51523\n");
        let reading = read(&tree);
        assert_eq!(reading.temperature_c, Some(47.4));
        assert_eq!(reading.sensor.as_deref(), Some("cpu-thermal"));
        assert_eq!(reading.khz, [Some(1_500_000)]);
        assert_eq!(reading.battery_percent, None);
        assert_eq!(Sensors::names(tree.root()), ["cpu-thermal", "rp1_adc"]);
    }

    #[test]
    fn a_server_in_a_container_has_no_sensors() {
        let tree = Tree::new(&[("proc/cpuinfo", "processor : 0\nmodel name : AMD EPYC\n")]);
        let expected = SensorReading {
            khz: vec![None],
            ..SensorReading::default()
        };
        assert_eq!(read(&tree), expected);
        assert!(Sensors::names(tree.root()).is_empty());
    }

    #[test]
    fn hardware_monitors_have_labels() {
        let monitor = "sys/class/hwmon/hwmon1";
        let tree = Tree::new(&[]);
        tree.file(&format!("{monitor}/name"), "k10temp\n");
        tree.file(&format!("{monitor}/temp1_input"), "72000\n");
        tree.file(&format!("{monitor}/temp1_label"), "Tctl\n");
        let name = |tree: &Tree| read(tree).sensor.expect("a sensor gives a value");
        assert_eq!(name(&tree), "k10temp: Tctl");
        tree.file(&format!("{monitor}/temp2_input"), "45000\n");
        tree.file(&format!("{monitor}/temp2_label"), "Tdie\n");
        assert_eq!(name(&tree), "k10temp: Tdie");
        for name in ["k10temp", "K10TEMP: tdie"] {
            let sensors = Sensors::find_named(tree.root(), name).expect("a sensor has the name");
            assert_eq!(sensors.read().temperature_c, Some(45.0));
        }
        assert!(Sensors::find_named(tree.root(), "k10").is_none());
    }

    #[test]
    fn unreadable_zones_leave_the_battery() {
        let tree = pixel_8();
        for zone in 0..3 {
            let zone = format!("sys/class/thermal/thermal_zone{zone}");
            tree.file(&format!("{zone}/type"), "BIG\n");
            // A directory cannot be read as a file, even by the superuser.
            tree.file(&format!("{zone}/temp/none"), "");
        }
        assert_eq!(read(&tree).temperature_c, None);
        let pen = [("type", "Battery"), ("scope", "Device"), ("temp", "900")];
        supply(&tree, "a-pen", &pen);
        supply(&tree, "battery", &[("type", "Battery"), ("temp", "314")]);
        let reading = read(&tree);
        assert!(near(reading.temperature_c, 31.4));
        assert_eq!(reading.sensor.as_deref(), Some("battery"));
    }

    #[test]
    fn odd_temperatures_are_understood_or_ignored() {
        let only = |value| temperature(&[("cpu", value)]).map(|(value, _)| value);
        let expected = [("45", 45.0), ("452", 45.2), ("45200", 45.2), ("1000", 1.0)];
        for (value, expected) in expected {
            assert!(near(only(value), expected), "{value}");
        }
        for value in ["0", "-5", "130000", "-273200", "2147483648", "x", "", "nan"] {
            assert_eq!(only(value), None, "{value}");
        }
        let other = [("xo-therm", "38000"), ("VIRTUAL-SKIN-CPU", "39000")];
        assert_eq!(temperature(&other), Some((39.0, other[1].0.to_owned())));
        for name in [
            "apc1-cpu0-usr",
            "tsens_tz_sensor3",
            "x86_pkg_temp",
            "bcm2835_thermal",
            "mtktscpu",
            "bigcore0-thermal",
            "CPU-therm",
            "soc_thermal",
            "soc",
            "TCPU",
        ] {
            let list = [(name, "30000"), ("acpitz", "90000"), ("battery", "80000")];
            assert_eq!(temperature(&list), Some((30.0, name.to_owned())));
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        for seed in 200..400 {
            let tree = noise(seed);
            let reading = read(&tree);
            assert!(reading.temperature_c.is_none_or(|c| c > 0.0 && c < 130.0));
            for name in Sensors::names(tree.root()) {
                let sensors = Sensors::find_named(tree.root(), &name);
                let _ = sensors.expect("a listed sensor is found").read();
            }
            let text = fs::read(tree.root().join("proc/cpuinfo")).expect("the tree has the file");
            let _ = battery_from_dumpsys(&String::from_utf8_lossy(&text));
        }
    }
}
