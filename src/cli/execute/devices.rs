//! `pkgtool devices`: lists the devices that can be reached, and removes the tool's files from them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::super::device_args::{DeviceList, DeviceUse};
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report::{self, CommandReport, file_size};
use pkgtool_base::diagnostic::book;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::device::describe::CoreCluster;
use pkgtool_engine::runtime::device::{DeviceAddress, DeviceBackend, DeviceReport};
use pkgtool_engine::tensor::limit::format_bytes;

/// Arguments of `pkgtool devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "devices"), args_conflicts_with_subcommands = true)]
pub(in super::super) struct DevicesArgs {
    #[command(subcommand)]
    action: Option<DevicesCommand>,

    /// Devices to describe [default: those that `adb devices` lists]
    #[arg(long, value_name = "DEVICE,…", env = "PKGTOOL_ON")]
    on: Option<DeviceList>,

    #[command(flatten)]
    how: DeviceUse,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What to do with devices.
#[derive(Debug, clap::Subcommand)]
enum DevicesCommand {
    /// Remove all files of the tool from devices
    Clean {
        /// The devices
        #[arg(long, value_name = "DEVICE,…", env = "PKGTOOL_ON")]
        on: DeviceList,

        #[command(flatten)]
        how: Box<DeviceUse>,
    },
}

const EXAMPLES: &str = "\
Examples:
  pkgtool devices
  pkgtool devices --on ssh:pi@raspberrypi,adb --json
  pkgtool devices clean --on ssh:pi@raspberrypi";

/// A device, or why it cannot be used.
#[derive(Debug, Serialize)]
struct ListedDevice {
    address: String,
    #[serde(flatten)]
    report: Option<DeviceReport>,
    /// The engine and provider that runs a small model, by backend.
    backends: Vec<DeviceBackend>,
    error: Option<String>,
}

/// The devices that were looked at.
#[derive(Debug, Serialize)]
struct DeviceTable {
    version: u32,
    devices: Vec<ListedDevice>,
}

/// Runs the command.
pub(in super::super) fn run(args: &DevicesArgs) -> Result<Exit, Failure> {
    if let Some(DevicesCommand::Clean { on, how }) = &args.action {
        return clean(on.addresses(), how);
    }
    let addresses = match &args.on {
        Some(list) => list.addresses().to_vec(),
        None => android_devices()?,
    };
    if addresses.is_empty() {
        let reason = "no device: connect one and allow debugging on its screen, or name it with --on ssh:HOST";
        return Err(Failure::Nothing(reason.to_owned()));
    }
    let devices: Vec<ListedDevice> = addresses.iter().map(|it| listed(it, &args.how)).collect();
    let is_reached = devices.iter().any(|device| device.error.is_none());
    report::print(
        &DeviceTable {
            version: 1,
            devices,
        },
        args.json,
    )?;
    Ok(if is_reached {
        Exit::Clean
    } else {
        Exit::Failure
    })
}

fn clean(addresses: &[DeviceAddress], how: &DeviceUse) -> Result<Exit, Failure> {
    for address in addresses {
        let device = how.connect(address)?;
        let device = device.ok_or_else(|| {
            Failure::Other("this machine is no device: nothing was sent to it".to_owned())
        })?;
        let removed = device.clean()?;
        output::print(&format!(
            "{}: removed {} files, {}\n",
            defuse_line(&address.to_string()),
            removed.files,
            file_size(removed.bytes)
        ))?;
    }
    Ok(Exit::Clean)
}

/// Returns the Android devices that the platform's program lists.
fn android_devices() -> Result<Vec<DeviceAddress>, Failure> {
    let listed = Command::new("adb")
        .arg("devices")
        .stdin(Stdio::null())
        .output();
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::Other(format!("`adb devices`: {error}"))),
    };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows = text.lines().filter_map(|line| line.split_once('\t'));
    let serials = rows.map(|(serial, _)| DeviceAddress::Adb(Some(serial.trim().to_owned())));
    Ok(serials.collect())
}

fn listed(address: &DeviceAddress, how: &DeviceUse) -> ListedDevice {
    let described = how.connect(address).and_then(|device| match device {
        Some(device) => Ok((device.describe()?, device.backends()?)),
        None => Ok((DeviceReport::of_this_machine(), Vec::new())),
    });
    let (report, backends, error) = match described {
        Ok((report, backends)) => (Some(report), backends, None),
        Err(error) => (None, Vec::new(), Some(error.to_string())),
    };
    ListedDevice {
        address: address.to_string(),
        report,
        backends,
        error,
    }
}

/// Writes what is known about a device, a fact on each line.
fn write_report(text: &mut String, report: &DeviceReport) -> std::fmt::Result {
    let DeviceReport {
        machine,
        facts,
        sensors,
    } = report;
    let mut line = |name: &str, value: Option<String>| match value {
        Some(value) => writeln!(text, "  {name:12} {}", defuse_line(&value)),
        None => Ok(()),
    };
    line("model", facts.model.clone())?;
    line(
        "chip",
        facts.chip.clone().or_else(|| Some(machine.cpu.clone())),
    )?;
    let clusters: Vec<String> = facts.clusters.iter().map(cluster_text).collect();
    line(
        "cores",
        Some(clusters.join(", ")).filter(|text| !text.is_empty()),
    )?;
    let free = facts
        .free_memory_bytes
        .map(|free| format!(", {} free", format_bytes(free)));
    let memory = format_bytes(machine.memory_bytes);
    line("memory", Some(memory + &free.unwrap_or_default()))?;
    line(
        "system",
        facts
            .system
            .clone()
            .or_else(|| Some(machine.system.clone())),
    )?;
    line("architecture", Some(machine.architecture.clone()))?;
    line(
        "temperature",
        sensors.temperature_c.map(|degrees| {
            let sensor = sensors.sensor.as_deref().unwrap_or("unnamed");
            format!("{degrees:.1} °C ({sensor})")
        }),
    )?;
    line(
        "battery",
        sensors.battery_percent.map(|percent| {
            let charges = match sensors.battery_charging {
                Some(true) => ", charging",
                Some(false) => ", discharging",
                None => "",
            };
            format!("{percent} %{charges}")
        }),
    )
}

/// Formats as `4 Cortex-A510 up to 1.70 GHz`.
fn cluster_text(cluster: &CoreCluster) -> String {
    let part = cluster.part.as_deref().unwrap_or("cores");
    let most = cluster.max_frequency_text();
    let most = most.map(|text| format!(" {text}"));
    format!("{} {part}{}", cluster.cores.len(), most.unwrap_or_default())
}

impl CommandReport for DeviceTable {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for device in &self.devices {
            writeln!(text, "{}", defuse_line(&device.address))?;
            if let Some(error) = &device.error {
                writeln!(text, "  {}", defuse_line(error))?;
            }
            if let Some(report) = &device.report {
                write_report(text, report)?;
            }
            let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for one in &device.backends {
                let name = if one.fallback {
                    format!("by {}", one.engine)
                } else {
                    "backends".to_owned()
                };
                rows.entry(name).or_default().push(&one.backend);
            }
            for (name, backends) in rows {
                writeln!(text, "  {name:12} {}", backends.join(", "))?;
            }
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        self
    }
}
