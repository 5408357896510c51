//! Trees of files that stand in for devices in the tests.
//!
//! This file uses none of the files that it helps to test.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// The directory of the cores.
pub(super) const CPU: &str = "sys/devices/system/cpu";

/// A device's files in a temporary directory.
pub(super) struct Tree(TempDir);

impl Tree {
    /// Returns a tree with these paths and their texts.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(TempDir::new().expect("the system gives a temporary directory"));
        for (path, text) in files {
            tree.file(path, text);
        }
        tree
    }

    /// Returns the directory that stands in for `/`.
    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and creates the directories above it.
    pub(super) fn file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        let directory = path.parent().expect("a path below the root has a parent");
        fs::create_dir_all(directory).expect("the tree can take a directory");
        fs::write(path, bytes).expect("the tree can take a file");
    }

    /// Adds Arm cores in order; each has a part number, a maximum and a frequency.
    pub(super) fn cores(&self, cores: &[(u32, u32, u32)]) {
        let mut info = String::new();
        for (core, (part, max, now)) in cores.iter().enumerate() {
            let block = format!(
                "processor\t: {core}\nBogoMIPS\t: 49.15\nFeatures\t: fp asimd\n\
                 CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n\
                 CPU part\t: {part:#x}\nCPU revision\t: 1\n\n"
            );
            info.push_str(&block);
            let policy = format!("{CPU}/cpu{core}/cpufreq");
            self.file(&format!("{policy}/cpuinfo_max_freq"), format!("{max}\n"));
            self.file(&format!("{policy}/scaling_cur_freq"), format!("{now}\n"));
        }
        self.file("proc/cpuinfo", info);
        let online = format!("0-{}\n", cores.len() - 1);
        self.file(&format!("{CPU}/online"), online);
    }
}

/// Returns the cores and the memory of a Pixel 8.
pub(super) fn pixel_8() -> Tree {
    let tree = Tree::new(&[(
        "proc/meminfo",
        "MemTotal:        7803536 kB\nMemFree:          231964 kB\nMemAvailable:    3121320 kB\n",
    )]);
    let mut cores = vec![(0xd46, 1_704_000, 1_328_000); 4];
    cores.extend([(0xd4d, 2_367_000, 1_836_000); 4]);
    cores.push((0xd4e, 2_914_000, 2_914_000));
    tree.cores(&cores);
    tree
}

/// Returns the cores of a phone with a Snapdragon 8 Gen 2.
pub(super) fn snapdragon_8_gen_2() -> Tree {
    let tree = Tree::new(&[]);
    let mut cores = vec![(0xd46, 2_016_000, 441_600); 3];
    cores.extend([(0xd4d, 2_803_200, 499_200); 2]);
    cores.extend([(0xd47, 2_803_200, 614_400); 2]);
    cores.push((0xd4e, 3_187_200, 595_200));
    tree.cores(&cores);
    tree
}

/// Returns the cores and the names of a Raspberry Pi 5.
pub(super) fn raspberry_pi_5() -> Tree {
    let tree = Tree::new(&[
        ("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0"),
        (
            "proc/device-tree/compatible",
            "raspberrypi,5-model-b\0brcm,bcm2712\0",
        ),
        (
            "etc/os-release",
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\n",
        ),
    ]);
    tree.cores(&[(0xd0b, 2_400_000, 1_500_000); 4]);
    tree
}

/// Returns a tree in which every file holds random bytes.
pub(super) fn noise(seed: u64) -> Tree {
    const FILES: &str = "proc/cpuinfo proc/meminfo etc/os-release \
        proc/device-tree/model proc/device-tree/compatible \
        sys/devices/virtual/dmi/id/sys_vendor sys/devices/virtual/dmi/id/product_name \
        CPU/online CPU/cpu0/cpufreq/cpuinfo_max_freq CPU/cpu0/cpufreq/scaling_cur_freq \
        CPU/cpu1/regs/identification/midr_el1 CPU/cpu99999999999/online \
        CLASS/thermal/thermal_zone0/temp CLASS/thermal/thermal_zone1/temp \
        CLASS/thermal/thermal_zone1/type CLASS/hwmon/hwmon0/name \
        CLASS/hwmon/hwmon0/temp1_input CLASS/hwmon/hwmon0/temp1_label \
        BATTERY/capacity BATTERY/status BATTERY/current_now BATTERY/voltage_now \
        BATTERY/temp BATTERY/power_now BATTERY/scope";
    const LIKELY: &[u8] = b"0123456789-,: \n\0\"'=[]x";
    let tree = Tree::new(&[
        ("sys/class/thermal/thermal_zone0/type", "cpu"),
        ("sys/class/power_supply/battery/type", "Battery"),
    ]);
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    };
    for path in FILES.split_whitespace() {
        let path = path.replace("CPU", CPU);
        let path = path.replace("BATTERY", "CLASS/power_supply/battery");
        let mut bytes: Vec<u8> = (0..next()[0] / 8).flat_map(|_| next()).collect();
        if next()[0] > 99 {
            for byte in &mut bytes {
                *byte = LIKELY[usize::from(*byte) % LIKELY.len()];
            }
            bytes.truncate(usize::from(next()[0] / 16));
        }
        tree.file(&path.replace("CLASS", "sys/class"), bytes);
    }
    tree
}

/// Adds the files of a power supply.
pub(super) fn supply(tree: &Tree, name: &str, values: &[(&str, &str)]) {
    for (file, value) in values {
        tree.file(
            &format!("sys/class/power_supply/{name}/{file}"),
            format!("{value}\n"),
        );
    }
}

/// Returns whether there is a value and it is about the expected one.
pub(super) fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-6)
}
