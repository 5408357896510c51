//! Heat: waiting until a device is cool, and measuring a model until the device is warm.

use std::thread::sleep;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::super::super::device_args::DeviceArgs;
use super::super::super::exit::Failure;
use super::super::super::progress;
use super::StartedSide;
use super::sustained::{SustainedPoint, SustainedSeries};
use crate::cli::execute::sides::ExecutionSide;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::statistics::Times;

/// Number of points of a curve, and the shortest and longest time of one.
const POINTS: u32 = 100;
const SHORTEST_POINT: Duration = Duration::from_secs(1);
const LONGEST_POINT: Duration = Duration::from_secs(10);
/// Maximum time to wait for a device to cool down, and the pause between two looks.
const MAX_COOLING: Duration = Duration::from_mins(20);
const COOLING_PAUSE: Duration = Duration::from_secs(2);

/// Options about heat.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measuring")]
pub(super) struct HeatArgs {
    /// Wait until each device is cooler than so many degrees Celsius before it is measured
    #[arg(long, value_name = "DEGREES", value_parser = clap::value_parser!(u8).range(1..=120))]
    cool: Option<u8>,

    /// Run each model without a pause for so long, such as `10m`, and show how its time changes with the temperature
    #[arg(long, value_name = "TIME", value_parser = long_time,
        conflicts_with_all = ["runs", "seconds", "rounds", "samples", "max_ratio", "baseline", "write_baseline", "profile"])]
    pub(super) sustained: Option<Duration>,
}

/// Parses a time in seconds, minutes or hours.
fn long_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("expected a time with its unit, such as `90s` or `10m`".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a whole number".to_owned())?;
    let seconds = number.saturating_mul(unit);
    if (1..=24 * 3600).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err("expected at least a second and at most a day".to_owned())
    }
}

impl HeatArgs {
    /// Waits until each device is cool enough.
    pub(super) fn wait(
        &self,
        devices: &DeviceArgs,
        addresses: &[DeviceAddress],
    ) -> Result<(), Failure> {
        let Some(degrees) = self.cool else {
            return Ok(());
        };
        for address in addresses {
            wait_until_cool(devices, address, f64::from(degrees))?;
        }
        Ok(())
    }

    /// Runs each model for so long, one after the other.
    pub(super) fn sustain(
        &self,
        devices: &DeviceArgs,
        sides: &[ExecutionSide],
        started: &mut [StartedSide],
        time: Duration,
    ) -> Result<Vec<SustainedSeries>, Failure> {
        let mut all = Vec::new();
        for (side, one) in sides.iter().zip(started) {
            self.wait(devices, std::slice::from_ref(&side.device))?;
            let points = curve(devices, side, one, time)?;
            all.push(SustainedSeries::of(side, &one.started, points));
        }
        Ok(all)
    }
}

fn wait_until_cool(
    devices: &DeviceArgs,
    address: &DeviceAddress,
    degrees: f64,
) -> Result<(), Failure> {
    let since = Instant::now();
    let bar = ProgressBar::new_spinner();
    let bar = progress::styled(bar, "{spinner} {msg}");
    loop {
        let reading = devices.sense(address)?;
        let Some(now) = reading.temperature_c else {
            let reason = format!("{address} reports no temperature: omit --cool");
            return Err(Failure::Other(reason));
        };
        if now < degrees {
            bar.finish_and_clear();
            return Ok(());
        }
        if since.elapsed() > MAX_COOLING {
            let sensor = reading.sensor.unwrap_or_default();
            let minutes = MAX_COOLING.as_secs() / 60;
            return Err(Failure::Other(format!(
                "{address} still has {now:.1} °C ({sensor}) after {minutes} minutes, and --cool asks for less than {degrees} °C: cool it, or allow more"
            )));
        }
        bar.set_message(format!("{address}: {now:.1} °C, waiting for {degrees} °C"));
        sleep(COOLING_PAUSE);
    }
}

/// Runs a model for so long, and reads the sensors between the points.
fn curve(
    devices: &DeviceArgs,
    side: &ExecutionSide,
    one: &mut StartedSide,
    time: Duration,
) -> Result<Vec<SustainedPoint>, Failure> {
    let step = (time / POINTS).clamp(SHORTEST_POINT, LONGEST_POINT);
    let bar = progress::bar(time.as_secs(), "{msg} {bar:30} {elapsed} of {len} s");
    bar.set_message(side.device.to_string());
    let since = Instant::now();
    let mut points = Vec::new();
    while since.elapsed() < time {
        let at = since.elapsed();
        let times = one.started.worker.repeat(u64::MAX, step);
        let times = times.map_err(|error| {
            let model = side.selection.model.display();
            Failure::Other(format!("{model}: {error}"))
        })?;
        let reading = devices.sense(&side.device)?;
        if let Some(times) = Times::of(times.into_iter()) {
            points.push(SustainedPoint::new(at, &times, reading));
        }
        bar.set_position(since.elapsed().as_secs());
    }
    bar.finish_and_clear();
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(long_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(long_time("10m"), Ok(Duration::from_mins(10)));
        for text in ["", "10", "m", "0s", "2d", "25h", "1.5m", "-3s"] {
            assert!(long_time(text).is_err(), "{text}");
        }
    }
}
