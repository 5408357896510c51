//! Finds the cores of a device and puts equal cores into groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{ENTRY_LIMIT, FILE_LIMIT, clean, numbered, read_number, read_text};

/// The directory of the cores.
pub(super) const CPU: &str = "sys/devices/system/cpu";

/// Cores with the same maximum frequency and the same part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreCluster {
    /// The numbers of the cores, in ascending order.
    pub cores: Vec<u32>,
    /// The maximum frequency in kHz.
    pub max_khz: Option<u64>,
    /// The name of the core, such as `Cortex-A76`, or the processor's name on x86.
    ///
    /// An unknown Arm core has the form `0x41/0xd0b` (implementer and part).
    pub part: Option<String>,
}

impl CoreCluster {
    /// Formats the maximum frequency as `up to 1.70 GHz`, if it is known.
    pub fn max_frequency_text(&self) -> Option<String> {
        let khz = self.max_khz?;
        let (whole, hundredths) = (khz / 1_000_000, khz % 1_000_000 / 10_000);
        Some(format!("up to {whole}.{hundredths:02} GHz"))
    }
}

/// Returns the groups of equal cores of the device below `root`, slowest first.
///
/// The order is the order of `DeviceFacts::clusters`.
pub(super) fn clusters(root: &Path) -> Vec<CoreCluster> {
    group(root, &CpuInfo::read(root))
}

/// The implementer and part, or the name, of a core in `/proc/cpuinfo`.
#[derive(Default)]
struct CoreIdentity {
    implementer: Option<u32>,
    part: Option<u32>,
    model_name: Option<String>,
}

impl CoreIdentity {
    fn name(&self) -> Option<String> {
        match (self.implementer, self.part) {
            (Some(implementer), Some(part)) => Some(core_name(implementer, part)),
            _ => self.model_name.clone(),
        }
    }
}

/// The content of `/proc/cpuinfo`.
#[derive(Default)]
pub(super) struct CpuInfo {
    cores: BTreeMap<u32, CoreIdentity>,
    /// The lines outside of the cores' blocks; older Arm kernels write one part for all.
    common: CoreIdentity,
    pub(super) hardware: Option<String>,
    pub(super) model_name: Option<String>,
    /// The name of the cores that a cut file leaves out, when all others share it.
    rest: Option<String>,
}

impl CpuInfo {
    pub(super) fn read(root: &Path) -> Self {
        let text = read_text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let limit = usize::try_from(FILE_LIMIT).unwrap_or(usize::MAX);
        if text.len() < limit {
            return Self::parse(&text);
        }
        let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
        let mut info = Self::parse(whole);
        let names: BTreeSet<_> = info.cores.values().map(CoreIdentity::name).collect();
        if names.len() == 1 {
            info.rest = names.into_iter().next().flatten();
        }
        info
    }

    fn parse(text: &str) -> Self {
        let mut info = Self::default();
        let mut current = None;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                if line.trim().is_empty() {
                    current = None;
                }
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            if key == "processor" {
                current = value.parse().ok();
                if let Some(core) = current.filter(|_| info.cores.len() < ENTRY_LIMIT) {
                    info.cores.entry(core).or_default();
                }
                continue;
            }
            if key == "Hardware" && info.hardware.is_none() {
                info.hardware = clean(value);
            }
            if key == "model name" && info.model_name.is_none() {
                info.model_name = clean(value);
            }
            let Some(identity) = (match current {
                Some(core) => info.cores.get_mut(&core),
                None => Some(&mut info.common),
            }) else {
                continue;
            };
            match key {
                "CPU implementer" => identity.implementer = hexadecimal(value),
                "CPU part" => identity.part = hexadecimal(value),
                "model name" => identity.model_name = clean(value),
                _ => {}
            }
        }
        info
    }

    /// Returns the name of a core, from its register or from `/proc/cpuinfo`.
    fn part(&self, root: &Path, core: u32) -> Option<String> {
        let register = format!("{CPU}/cpu{core}/regs/identification/midr_el1");
        let register = read_text(&root.join(register)).and_then(|text| hexadecimal(&text));
        match register {
            Some(value) if value != 0 => Some(core_name(value >> 24, (value >> 4) & 0xfff)),
            _ => self
                .cores
                .get(&core)
                .and_then(CoreIdentity::name)
                .or_else(|| self.common.name())
                .or_else(|| self.rest.clone()),
        }
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    let value = u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()?;
    u32::try_from(value).ok()
}

/// Returns the cores in groups of the same maximum frequency and part.
pub(super) fn group(root: &Path, info: &CpuInfo) -> Vec<CoreCluster> {
    let mut groups: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for core in cores(root, info) {
        let path = format!("{CPU}/cpu{core}/cpufreq/cpuinfo_max_freq");
        let max_khz = read_number::<u64>(&root.join(path)).filter(|khz| *khz > 0);
        let key = (max_khz, info.part(root, core));
        groups.entry(key).or_default().push(core);
    }
    let mut clusters: Vec<_> = groups
        .into_iter()
        .map(|((max_khz, part), cores)| CoreCluster {
            cores,
            max_khz,
            part,
        })
        .collect();
    clusters.sort_by_key(|cluster| (cluster.max_khz, cluster.cores.first().copied()));
    clusters
}

/// Returns the numbers of the cores that are switched on, in ascending order.
fn cores(root: &Path, info: &CpuInfo) -> Vec<u32> {
    let online = read_text(&root.join(CPU).join("online")).unwrap_or_default();
    let mut cores = BTreeSet::new();
    for piece in online.trim().split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cores.extend((first..=last).take(ENTRY_LIMIT));
        }
        if cores.len() >= ENTRY_LIMIT {
            break;
        }
    }
    if !cores.is_empty() {
        return cores.into_iter().take(ENTRY_LIMIT).collect();
    }
    let present = numbered(&root.join(CPU), "cpu", "");
    if present.is_empty() {
        return info.cores.keys().copied().collect();
    }
    present
}

/// Arm's implementer numbers, their part numbers and the cores' names.
const PARTS: [(u32, &[(u32, &str)]); 6] = [
    (
        0x41,
        &[
            (0xc07, "Cortex-A7"),
            (0xc08, "Cortex-A8"),
            (0xc09, "Cortex-A9"),
            (0xc0e, "Cortex-A17"),
            (0xc0f, "Cortex-A15"),
            (0xd01, "Cortex-A32"),
            (0xd03, "Cortex-A53"),
            (0xd04, "Cortex-A35"),
            (0xd05, "Cortex-A55"),
            (0xd07, "Cortex-A57"),
            (0xd08, "Cortex-A72"),
            (0xd09, "Cortex-A73"),
            (0xd0a, "Cortex-A75"),
            (0xd0b, "Cortex-A76"),
            (0xd0c, "Neoverse N1"),
            (0xd0d, "Cortex-A77"),
            (0xd0e, "Cortex-A76AE"),
            (0xd40, "Neoverse V1"),
            (0xd41, "Cortex-A78"),
            (0xd42, "Cortex-A78AE"),
            (0xd44, "Cortex-X1"),
            (0xd46, "Cortex-A510"),
            (0xd47, "Cortex-A710"),
            (0xd48, "Cortex-X2"),
            (0xd49, "Neoverse N2"),
            (0xd4b, "Cortex-A78C"),
            (0xd4c, "Cortex-X1C"),
            (0xd4d, "Cortex-A715"),
            (0xd4e, "Cortex-X3"),
            (0xd4f, "Neoverse V2"),
            (0xd80, "Cortex-A520"),
            (0xd81, "Cortex-A720"),
            (0xd82, "Cortex-X4"),
            (0xd84, "Neoverse V3"),
            (0xd85, "Cortex-X925"),
            (0xd87, "Cortex-A725"),
            (0xd8e, "Neoverse N3"),
        ],
    ),
    (0x48, &[(0xd01, "TaiShan V110"), (0xd40, "Cortex-A76")]),
    (0x4e, &[(0x003, "Denver 2"), (0x004, "Carmel")]),
    (
        0x51,
        &[
            (0x001, "Oryon"),
            (0x201, "Kryo"),
            (0x205, "Kryo"),
            (0x211, "Kryo"),
            (0x800, "Kryo 2xx Gold"),
            (0x801, "Kryo 2xx Silver"),
            (0x802, "Kryo 3xx Gold"),
            (0x803, "Kryo 3xx Silver"),
            (0x804, "Kryo 4xx Gold"),
            (0x805, "Kryo 4xx Silver"),
        ],
    ),
    (
        0x53,
        &[
            (0x001, "Exynos M1"),
            (0x002, "Exynos M3"),
            (0x003, "Exynos M4"),
            (0x004, "Exynos M5"),
        ],
    ),
    (
        0x61,
        &[
            (0x022, "Apple M1 Icestorm"),
            (0x023, "Apple M1 Firestorm"),
            (0x024, "Apple M1 Pro Icestorm"),
            (0x025, "Apple M1 Pro Firestorm"),
            (0x028, "Apple M1 Max Icestorm"),
            (0x029, "Apple M1 Max Firestorm"),
            (0x032, "Apple M2 Blizzard"),
            (0x033, "Apple M2 Avalanche"),
        ],
    ),
];

/// Returns the name of an Arm core, or its numbers when the name is not known.
fn core_name(implementer: u32, part: u32) -> String {
    PARTS
        .iter()
        .filter(|(number, _)| *number == implementer)
        .flat_map(|(_, parts)| parts.iter())
        .find(|(number, _)| *number == part)
        .map_or_else(
            || format!("{implementer:#04x}/{part:#05x}"),
            |(_, name)| (*name).to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_cores_have_names() {
        assert_eq!(core_name(0x41, 0xd0b), "Cortex-A76");
        assert_eq!(core_name(0x51, 0x804), "Kryo 4xx Gold");
        assert_eq!(core_name(0x61, 0x023), "Apple M1 Firestorm");
        assert_eq!(core_name(0x41, 0xfff), "0x41/0xfff");
        assert_eq!(core_name(0x06, 0x001), "0x06/0x001");
    }

    #[test]
    fn no_part_is_listed_twice() {
        for (_, parts) in PARTS {
            assert!(parts.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}
