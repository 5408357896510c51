//! Gathers the facts about a device that do not change while it runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cores::{CoreCluster, CpuInfo, group};
use super::files::{clean, read_line, read_text};

/// The facts about a device that do not change while it runs, and its free memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// The maker and the name of the device, such as `Google Pixel 8`.
    pub model: Option<String>,
    /// The chip, such as `Google Tensor G3` or `brcm,bcm2712`.
    pub chip: Option<String>,
    /// The operating system, such as `Android 14 (API 34)`.
    pub system: Option<String>,
    /// The groups of equal cores, slowest first.
    pub clusters: Vec<CoreCluster>,
    /// The size of the memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The memory that programs can still take, in bytes.
    pub free_memory_bytes: Option<u64>,
}

/// Returns the facts about the device whose files are below `root`.
///
/// `properties` holds Android's properties; it is empty on other systems.
/// A file that cannot be read leaves its fact empty.
#[must_use]
pub fn read_facts(root: &Path, properties: &BTreeMap<String, String>) -> DeviceFacts {
    let info = CpuInfo::read(root);
    let memory = read_text(&root.join("proc/meminfo")).unwrap_or_default();
    DeviceFacts {
        model: model(root, properties),
        chip: chip(root, properties, &info),
        system: system(root, properties),
        clusters: group(root, &info),
        memory_bytes: memory_value(&memory, "MemTotal"),
        free_memory_bytes: memory_value(&memory, "MemAvailable")
            .or_else(|| memory_value(&memory, "MemFree")),
    }
}

/// Returns the properties in the output of Android's `getprop`.
///
/// A line has the form `[name]: [value]`. A value may span lines.
#[must_use]
pub fn parse_properties(text: &str) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let mut current: Option<(&str, String)> = None;
    for line in text.lines() {
        if let Some((name, start)) = property_start(line) {
            if let Some((name, value)) = current.replace((name, start.to_owned())) {
                properties.insert(name.to_owned(), property_value(&value));
            }
        } else if let Some((_, value)) = &mut current {
            value.push('\n');
            value.push_str(line);
        }
    }
    if let Some((name, value)) = current {
        properties.insert(name.to_owned(), property_value(&value));
    }
    properties
}

/// Returns the name and the beginning of the value when `line` begins a property.
fn property_start(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix('[')?.split_once("]: [")?;
    let plain = |c: char| !c.is_whitespace() && c != '[' && c != ']';
    (!name.is_empty() && name.chars().all(plain)).then_some((name, value))
}

/// Returns a property's value without the closing bracket and what follows it.
fn property_value(text: &str) -> String {
    let text = text.trim_end();
    let end = match text.strip_suffix(']') {
        Some(value) => value.len(),
        None => text.rfind("]\n").unwrap_or(text.len()),
    };
    text[..end].to_owned()
}

/// Returns a property that has a value.
fn property(properties: &BTreeMap<String, String>, name: &str) -> Option<String> {
    properties
        .get(name)
        .and_then(|value| clean(value))
        .filter(|value| !value.eq_ignore_ascii_case("unknown"))
}

/// Returns `name` with `maker` before it, unless `name` already begins with it.
fn join(maker: Option<String>, name: String) -> String {
    match maker {
        Some(maker) if !name.to_lowercase().starts_with(&maker.to_lowercase()) => {
            format!("{maker} {name}")
        }
        _ => name,
    }
}

fn model(root: &Path, properties: &BTreeMap<String, String>) -> Option<String> {
    if let Some(name) = property(properties, "ro.product.model") {
        let maker = property(properties, "ro.product.manufacturer");
        return Some(join(maker, name));
    }
    read_line(&root.join("proc/device-tree/model")).or_else(|| {
        let vendor = firmware_name(root, "sys_vendor");
        match firmware_name(root, "product_name") {
            Some(name) => Some(join(vendor, name)),
            None => vendor,
        }
    })
}

/// Returns a name from the firmware, unless it is one that makers leave unchanged.
fn firmware_name(root: &Path, name: &str) -> Option<String> {
    const EMPTY: [&str; 9] = [
        "to be filled by o.e.m.",
        "system manufacturer",
        "system product name",
        "default string",
        "not specified",
        "not applicable",
        "o.e.m.",
        "unknown",
        "none",
    ];
    read_line(&root.join("sys/devices/virtual/dmi/id").join(name))
        .filter(|value| !EMPTY.contains(&value.to_lowercase().as_str()))
}

fn chip(root: &Path, properties: &BTreeMap<String, String>, info: &CpuInfo) -> Option<String> {
    if let Some(name) = property(properties, "ro.soc.model") {
        return Some(join(property(properties, "ro.soc.manufacturer"), name));
    }
    property(properties, "ro.board.platform")
        .or_else(|| {
            let text = read_text(&root.join("proc/device-tree/compatible"))?;
            text.split('\0').rev().find_map(clean)
        })
        .or_else(|| info.hardware.clone())
        .or_else(|| info.model_name.clone())
}

fn system(root: &Path, properties: &BTreeMap<String, String>) -> Option<String> {
    if let Some(release) = property(properties, "ro.build.version.release") {
        let level = property(properties, "ro.build.version.sdk");
        let level = level.map_or_else(String::new, |level| format!(" (API {level})"));
        return Some(format!("Android {release}{level}"));
    }
    let text = read_text(&root.join("etc/os-release"))?;
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value);
    clean(&inner.replace('\\', ""))
}

/// Returns the value of one line of `/proc/meminfo` in bytes.
fn memory_value(text: &str, name: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = value.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::files::ENTRY_LIMIT;
    use super::super::trees::{CPU, Tree, noise, pixel_8, raspberry_pi_5, snapdragon_8_gen_2};
    use super::*;

    /// Returns each group's cores, maximum frequency and part as text.
    fn summary(facts: &DeviceFacts) -> Vec<String> {
        let line = |c: &CoreCluster| {
            let khz = c.max_khz.map_or("-".to_owned(), |khz| khz.to_string());
            format!("{:?} {khz} {}", c.cores, c.part.as_deref().unwrap_or("-"))
        };
        facts.clusters.iter().map(line).collect()
    }

    fn facts(tree: &Tree, properties: &str) -> DeviceFacts {
        read_facts(tree.root(), &parse_properties(properties))
    }

    #[test]
    fn a_pixel_8_has_three_clusters() {
        let properties = "[ro.board.platform]: [zuma]\n[ro.build.version.release]: [14]\n\
            [ro.build.version.sdk]: [34]\n[ro.product.manufacturer]: [Google]\n\
            [ro.product.model]: [Pixel 8]\n[ro.soc.manufacturer]: [Google]\n\
            [ro.soc.model]: [Tensor G3]\n";
        let facts = facts(&pixel_8(), properties);
        assert_eq!(facts.model.as_deref(), Some("Google Pixel 8"));
        assert_eq!(facts.chip.as_deref(), Some("Google Tensor G3"));
        assert_eq!(facts.system.as_deref(), Some("Android 14 (API 34)"));
        assert_eq!(facts.memory_bytes, Some(7_803_536 * 1024));
        assert_eq!(facts.free_memory_bytes, Some(3_121_320 * 1024));
        let expected = [
            "[0, 1, 2, 3] 1704000 Cortex-A510",
            "[4, 5, 6, 7] 2367000 Cortex-A715",
            "[8] 2914000 Cortex-X3",
        ];
        assert_eq!(summary(&facts), expected);
        let json = serde_json::to_string(&facts).expect("facts become JSON");
        let back: DeviceFacts = serde_json::from_str(&json).expect("the JSON is that of facts");
        assert_eq!(back, facts);
    }

    #[test]
    fn a_snapdragon_separates_equally_fast_parts() {
        let properties = "[ro.product.manufacturer]: [OnePlus]\r\n[ro.board.platform]: [kalama]\r\n\
            [ro.product.model]: [ONEPLUS CPH2449]\r\n[ro.soc.model]: [unknown]\r\n";
        let tree = snapdragon_8_gen_2();
        // The register of core 7 is readable and decides.
        let path = format!("{CPU}/cpu7/regs/identification/midr_el1");
        tree.file(&path, "0x00000000411fd4e0\n");
        tree.file("proc/device-tree/compatible", "qcom,kalama\0");
        let facts = facts(&tree, properties);
        assert_eq!(facts.model.as_deref(), Some("ONEPLUS CPH2449"));
        assert_eq!(facts.chip.as_deref(), Some("kalama"));
        assert_eq!(facts.system, None);
        let expected = [
            "[0, 1, 2] 2016000 Cortex-A510",
            "[3, 4] 2803200 Cortex-A715",
            "[5, 6] 2803200 Cortex-A710",
            "[7] 3187200 Cortex-X3",
        ];
        assert_eq!(summary(&facts), expected);
    }

    #[test]
    fn a_raspberry_pi_5_is_described_by_its_device_tree() {
        let facts = facts(&raspberry_pi_5(), "");
        let model = facts.model.as_deref();
        assert_eq!(model, Some("Raspberry Pi 5 Model B Rev 1.0"));
        assert_eq!(facts.chip.as_deref(), Some("brcm,bcm2712"));
        let system = facts.system.as_deref();
        assert_eq!(system, Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(summary(&facts), ["[0, 1, 2, 3] 2400000 Cortex-A76"]);
    }

    #[test]
    fn a_cut_cpuinfo_names_all_cores_of_a_server() {
        let tree = Tree::new(&[
            ("sys/devices/virtual/dmi/id/sys_vendor", "QEMU\n"),
            (
                "sys/devices/virtual/dmi/id/product_name",
                "Default string\n",
            ),
        ]);
        let block = |core| {
            let flags = "flag ".repeat(300);
            format!("processor\t: {core}\nmodel name\t: AMD  EPYC 7763\nflags\t: {flags}\n\n")
        };
        tree.file("proc/cpuinfo", (0..96).map(block).collect::<String>());
        tree.file(&format!("{CPU}/online"), "0-95\n");
        let facts = facts(&tree, "");
        assert_eq!(facts.model.as_deref(), Some("QEMU"));
        assert_eq!(facts.chip.as_deref(), Some("AMD EPYC 7763"));
        assert_eq!(facts.clusters.len(), 1);
        assert_eq!(facts.clusters[0].cores.len(), 96);
    }

    #[test]
    fn odd_values_are_ignored() {
        let tree = Tree::new(&[(
            "proc/cpuinfo",
            "processor : 0\nBogoMIPS : 1\n\nprocessor : 1\n\nCPU implementer : 0x41\n\
             CPU part : 0xabc\nHardware : BCM2835\n",
        )]);
        assert_eq!(summary(&facts(&tree, "")), ["[0, 1] - 0x41/0xabc"]);
        assert_eq!(facts(&tree, "").chip.as_deref(), Some("BCM2835"));
        tree.file(&format!("{CPU}/online"), "3-1,x,0-4294967295\n");
        assert_eq!(facts(&tree, "").clusters[0].cores.len(), ENTRY_LIMIT);
        assert_eq!(facts(&Tree::new(&[]), ""), DeviceFacts::default());
    }

    #[test]
    fn properties_may_span_lines() {
        let text = "* daemon started\n[a.b]: [one\n[two]\nthree]\n[empty]: []\n\
            [last]: [x]\nshell exited";
        let properties = parse_properties(text);
        assert_eq!(properties["a.b"], "one\n[two]\nthree");
        assert_eq!(properties["empty"], "");
        assert_eq!(properties["last"], "x");
        assert_eq!(properties.len(), 3);
    }

    #[test]
    fn random_bytes_do_no_harm() {
        for seed in 0..200 {
            let tree = noise(seed);
            let text = read_text(&tree.root().join("proc/cpuinfo")).expect("the tree has the file");
            let _ = read_facts(tree.root(), &parse_properties(&format!("[a]: [{text}")));
        }
    }
}
