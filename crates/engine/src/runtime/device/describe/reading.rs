//! Defines the state of a device at one moment, and the scales of its temperatures.

use serde::{Deserialize, Serialize};

/// The state of the device at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SensorReading {
    /// The temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// The name of the sensor that gave the temperature.
    pub sensor: Option<String>,
    /// The current frequency of each cluster in kHz, which is the highest of its cores.
    ///
    /// The order is the order of `DeviceFacts::clusters`.
    pub khz: Vec<Option<u64>>,
    /// The charge of the battery in percent.
    pub battery_percent: Option<u8>,
    /// Whether the battery takes up charge.
    pub battery_charging: Option<bool>,
    /// The current out of the battery in mA; it is negative while the battery charges.
    ///
    /// It is empty when the battery neither charges nor discharges,
    /// because the sign has no fixed meaning then.
    /// A device may give µA or mA; numbers below 10 000 are taken as mA while the battery
    /// discharges, and all others as µA.
    pub battery_current_ma: Option<f64>,
    /// The voltage of the battery.
    pub battery_volts: Option<f64>,
    /// The power that the device takes from the battery in mW, while it discharges.
    pub power_mw: Option<f64>,
}

impl SensorReading {
    /// Returns this reading with its missing values taken from `other`.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        if self.temperature_c.is_none() {
            self.temperature_c = other.temperature_c;
            self.sensor = other.sensor;
        }
        if self.khz.iter().all(Option::is_none) && !other.khz.is_empty() {
            self.khz = other.khz;
        }
        self.battery_percent = self.battery_percent.or(other.battery_percent);
        self.battery_charging = self.battery_charging.or(other.battery_charging);
        self.battery_current_ma = self.battery_current_ma.or(other.battery_current_ma);
        self.battery_volts = self.battery_volts.or(other.battery_volts);
        self.power_mw = self.power_mw.or_else(|| self.power());
        if self.battery_charging != Some(true) {
            self.power_mw = self.power_mw.or(other.power_mw);
        }
        self
    }

    /// Returns current times voltage while the battery discharges.
    pub(super) fn power(&self) -> Option<f64> {
        let current = self.battery_current_ma.filter(|current| *current > 0.0)?;
        Some(current * self.battery_volts?)
    }
}

/// How the numbers of a temperature sensor are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemperatureScale {
    /// Thousandths of a degree, or whole or tenths of degrees when the number is small.
    Guess,
    /// Thousandths of a degree; smaller numbers are no temperatures.
    Thousandths,
    /// Tenths of a degree.
    Tenths,
}

/// Returns a temperature in degrees, when it is one that a running device can have.
pub(super) fn celsius(raw: i32, scale: TemperatureScale) -> Option<f64> {
    let raw_value = f64::from(raw);
    let degrees = match (scale, raw) {
        (TemperatureScale::Tenths, _) | (TemperatureScale::Guess, 130..1000) => raw_value / 10.0,
        (TemperatureScale::Guess, ..130) => raw_value,
        (TemperatureScale::Thousandths, ..1000) => return None,
        _ => raw_value / 1000.0,
    };
    (degrees > 0.0 && degrees < 130.0).then_some(degrees)
}
