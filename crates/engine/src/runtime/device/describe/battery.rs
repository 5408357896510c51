//! Reads a device's battery from its files or from Android's battery service.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{ENTRY_LIMIT, read_line, read_number};
use super::reading::{SensorReading, TemperatureScale, celsius};

/// The directory of the batteries and chargers.
const BATTERIES: &str = "sys/class/power_supply";

/// The state that a battery gives for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatteryStatus {
    Charging,
    Discharging,
    /// The battery is full, or it is connected and does not charge.
    Idle,
    Unknown,
}

/// Returns the values in the output of Android's `dumpsys battery`.
///
/// The temperature's sensor has the name `battery`. The frequencies are empty.
#[must_use]
pub fn battery_from_dumpsys(text: &str) -> SensorReading {
    let value = |name: &str| {
        let values = text.lines().filter_map(|line| line.split_once(':'));
        let mut values = values.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        values.next()?.1.trim().parse::<i32>().ok()
    };
    let status = match value("status") {
        Some(2) => BatteryStatus::Charging,
        Some(3) => BatteryStatus::Discharging,
        Some(4 | 5) => BatteryStatus::Idle,
        _ => BatteryStatus::Unknown,
    };
    let scale = i64::from(value("scale").filter(|scale| *scale > 0).unwrap_or(100));
    let percent = value("level").map(|level| i64::from(level) * 100 / scale);
    let temperature = value("temperature").and_then(|raw| celsius(raw, TemperatureScale::Tenths));
    let mut reading = SensorReading {
        temperature_c: temperature,
        sensor: temperature.map(|_| "battery".to_owned()),
        battery_percent: percent.and_then(percentage),
        ..SensorReading::default()
    };
    set_battery(&mut reading, status, value("current now"), value("voltage"));
    reading
}

/// Sets the battery's values from its status and from its numbers in any unit.
fn set_battery(
    reading: &mut SensorReading,
    status: BatteryStatus,
    current: Option<i32>,
    voltage: Option<i32>,
) {
    reading.battery_charging = match status {
        BatteryStatus::Charging => Some(true),
        BatteryStatus::Discharging | BatteryStatus::Idle => Some(false),
        BatteryStatus::Unknown => None,
    };
    reading.battery_current_ma = current.and_then(|current| milliamperes(current, status));
    reading.battery_volts = voltage.and_then(volts);
    reading.power_mw = reading.power();
}

fn percentage(value: i64) -> Option<u8> {
    u8::try_from(value).ok().filter(|percent| *percent <= 100)
}

/// Returns the current out of the battery, from a number in µA or mA with any sign.
///
/// A device in use never takes less than 10 mA, so smaller numbers are in mA while the
/// battery discharges. An almost full battery may take up less, so while it charges
/// every number is in µA.
fn milliamperes(raw: i32, status: BatteryStatus) -> Option<f64> {
    let size = f64::from(raw.unsigned_abs());
    match status {
        BatteryStatus::Discharging if raw == 0 => None,
        BatteryStatus::Discharging if size < 10_000.0 => Some(size),
        BatteryStatus::Discharging => Some(size / 1000.0),
        BatteryStatus::Charging => Some(0.0 - size / 1000.0),
        BatteryStatus::Idle | BatteryStatus::Unknown => None,
    }
}

/// Returns a voltage from a number in µV, mV or V.
fn volts(raw: i32) -> Option<f64> {
    let volts = match raw {
        ..100 => f64::from(raw),
        100..100_000 => f64::from(raw) / 1000.0,
        _ => f64::from(raw) / 1_000_000.0,
    };
    (1.0..=100.0).contains(&volts).then_some(volts)
}

/// Returns the directory of the device's own battery.
pub(super) fn battery(root: &Path) -> Option<PathBuf> {
    let supplies = root.join(BATTERIES);
    let entries = fs::read_dir(&supplies).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .take(ENTRY_LIMIT)
        .map(|entry| entry.path())
        .collect();
    // Android may forbid the listing and still allow the files.
    found.push(supplies.join("battery"));
    let own = |supply: &PathBuf| {
        // Mice and pens have batteries with the scope `Device`.
        read_line(&supply.join("type")).as_deref() == Some("Battery")
            && read_line(&supply.join("scope")).as_deref() != Some("Device")
    };
    found.retain(own);
    found.sort();
    let main = found.iter().position(|supply| supply.ends_with("battery"));
    let charged = |supply: &PathBuf| read_number::<i64>(&supply.join("capacity")).is_some();
    let index = main.or_else(|| found.iter().position(charged)).unwrap_or(0);
    found.into_iter().nth(index)
}

/// Puts the values of the battery into a reading.
pub(super) fn read_battery(battery: &Path, reading: &mut SensorReading) {
    let status = match read_line(&battery.join("status")).as_deref() {
        Some("Charging") => BatteryStatus::Charging,
        Some("Discharging") => BatteryStatus::Discharging,
        Some("Full" | "Not charging") => BatteryStatus::Idle,
        _ => BatteryStatus::Unknown,
    };
    reading.battery_percent = read_number(&battery.join("capacity")).and_then(percentage);
    let current = read_number(&battery.join("current_now"));
    let voltage = read_number(&battery.join("voltage_now"));
    set_battery(reading, status, current, voltage);
    if reading.power_mw.is_none() && status == BatteryStatus::Discharging {
        // Many laptops give the power in µW in place of the current.
        let power = read_number::<i32>(&battery.join("power_now"));
        let power = power.map(|power| f64::from(power.unsigned_abs()) / 1000.0);
        reading.power_mw = power.filter(|power| *power > 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{Tree, near, supply};
    use super::*;

    fn read(tree: &Tree) -> SensorReading {
        let directory = battery(tree.root()).expect("the tree has a battery");
        let mut reading = SensorReading::default();
        read_battery(&directory, &mut reading);
        reading
    }

    #[test]
    fn odd_currents_are_understood_or_ignored() {
        let current = milliamperes;
        assert_eq!(current(-320, BatteryStatus::Discharging), Some(320.0));
        assert_eq!(current(450_000, BatteryStatus::Discharging), Some(450.0));
        assert_eq!(
            current(i32::MIN, BatteryStatus::Charging),
            Some(-2_147_483.648)
        );
        assert_eq!(current(9_999, BatteryStatus::Discharging), Some(9_999.0));
        assert_eq!(current(10_000, BatteryStatus::Discharging), Some(10.0));
        assert_eq!(current(9_999, BatteryStatus::Charging), Some(-9.999));
        assert_eq!(current(-1_250, BatteryStatus::Charging), Some(-1.25));
        assert_eq!(current(0, BatteryStatus::Charging), Some(0.0));
        assert_eq!(current(0, BatteryStatus::Discharging), None);
        assert_eq!(current(976, BatteryStatus::Idle), None);
        assert_eq!(current(-976, BatteryStatus::Unknown), None);
        for raw in [12, 12_000, 12_000_000] {
            assert_eq!(volts(raw), Some(12.0));
        }
        assert_eq!(volts(-4_000_000), None);
        let tree = Tree::new(&[]);
        let laptop = [
            ("type", "Battery"),
            ("capacity", "101"),
            ("status", "Discharging"),
            ("power_now", "7500000"),
        ];
        supply(&tree, "BAT0", &laptop);
        assert_eq!(read(&tree).power_mw, Some(7500.0));
        assert_eq!(read(&tree).battery_percent, None);
    }

    #[test]
    fn the_battery_service_is_understood() {
        let text = "Current Battery Service state:\n  AC powered: false\n  status: 3\n  \
            level: 84\n  scale: 100\n  voltage: 4063\n  temperature: 326\n  \
            technology: Li-ion\n  current now: -321\n";
        let service = battery_from_dumpsys(text);
        assert!(near(service.temperature_c, 32.6));
        assert_eq!(service.battery_percent, Some(84));
        assert_eq!(service.battery_charging, Some(false));
        assert!(near(service.power_mw, 321.0 * 4.063));
        let files = SensorReading {
            temperature_c: Some(60.0),
            sensor: Some("BIG".to_owned()),
            khz: vec![Some(1)],
            battery_current_ma: Some(100.0),
            ..SensorReading::default()
        };
        let both = files.clone().or(SensorReading {
            power_mw: None,
            ..service
        });
        assert_eq!((&both.sensor, &both.khz), (&files.sensor, &files.khz));
        assert!(near(both.power_mw, 406.3));
        assert_eq!(
            battery_from_dumpsys("status: x\nlevel"),
            SensorReading::default()
        );
    }
}
