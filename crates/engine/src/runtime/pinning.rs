//! Pins a process to cores.
//!
//! A process pins itself while it has one thread. Threads inherit the cores of the thread that starts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::cores::{CoreChoice, MAX_CORES, core_list};
use super::device::describe::{CoreCluster, read_facts};

/// Equal cores with their speed.
#[derive(Debug, Clone)]
struct RatedCluster {
    cluster: CoreCluster,
    /// Capacity by the kernel's scale, which compares cores of different kinds; 0 if it is unknown.
    capacity: u64,
}

impl RatedCluster {
    /// Returns what orders clusters by their speed.
    fn speed(&self) -> (u64, u64) {
        (self.capacity, self.cluster.max_khz.unwrap_or(0))
    }
}

/// Formats as `0-3 (Cortex-A510 up to 1.70 GHz)`.
impl fmt::Display for RatedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", core_list(&self.cluster.cores))?;
        let part = self.cluster.part.clone();
        let most = self.cluster.max_frequency_text();
        let facts: Vec<String> = part.into_iter().chain(most).collect();
        if facts.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", facts.join(" "))
    }
}

impl CoreChoice {
    /// Returns the chosen cores of a machine with these clusters.
    fn among(&self, clusters: &[RatedCluster]) -> Result<BTreeSet<u32>, String> {
        let cores_of = |clusters: &[&RatedCluster]| -> BTreeSet<u32> {
            let cores = clusters.iter().flat_map(|it| &it.cluster.cores);
            cores.copied().collect()
        };
        let existing = cores_of(&clusters.iter().collect::<Vec<_>>());
        let texts: Vec<String> = clusters.iter().map(ToString::to_string).collect();
        let texts = texts.join(", ");
        if existing.is_empty() {
            return Err("the system does not describe its cores".to_owned());
        }
        let speeds = || clusters.iter().map(RatedCluster::speed);
        let (slowest, fastest) = (speeds().min(), speeds().max());
        let wanted = match self {
            Self::All => return Ok(existing),
            Self::Listed(cores) => {
                let unknown: BTreeSet<u32> = cores.difference(&existing).copied().collect();
                if unknown.is_empty() {
                    return Ok(cores.clone());
                }
                return Err(format!(
                    "no core {}: expected some of {texts}",
                    core_list(&unknown)
                ));
            }
            Self::Big => fastest,
            Self::Little => slowest,
        };
        if slowest == fastest {
            return Err(format!(
                "all cores are alike, as far as the system reports: {texts}; use `--cores all` or numbers"
            ));
        }
        let found = clusters.iter().filter(|it| Some(it.speed()) == wanted);
        Ok(cores_of(&found.collect::<Vec<_>>()))
    }
}

/// Pins this thread, and all threads that it will start, to cores of this machine.
pub(in crate::runtime) fn pin(choice: &CoreChoice) -> Result<(), String> {
    let wanted = choice.among(&clusters());
    let wanted = wanted.map_err(|error| format!("--cores {choice}: {error}"))?;
    let mut set = CpuSet::new();
    for core in wanted.iter().filter(|core| **core < MAX_CORES) {
        set.set(usize::try_from(*core).unwrap_or_default());
    }
    let listed = core_list(&wanted);
    sched_setaffinity(None, &set).map_err(|error| {
        format!("--cores {choice}: the system does not permit the cores {listed}: {error}")
    })?;
    let got = of_this_thread().unwrap_or_default();
    let is_whole = got.iter().copied().eq(wanted.iter().copied());
    // A container or a group of processes may have fewer cores than the machine.
    if is_whole || *choice == CoreChoice::All {
        return Ok(());
    }
    Err(format!(
        "--cores {choice}: the system permits only the cores {} of {listed}",
        core_list(&got)
    ))
}

/// Returns the clusters of this machine.
fn clusters() -> Vec<RatedCluster> {
    let facts = read_facts(Path::new("/"), &BTreeMap::new());
    let rated = facts.clusters.into_iter().map(|cluster| {
        let first = cluster.cores.first().copied().unwrap_or_default();
        let path = format!("/sys/devices/system/cpu/cpu{first}/cpu_capacity");
        let text = fs::read_to_string(path).unwrap_or_default();
        let capacity = text.trim().parse().unwrap_or(0);
        RatedCluster { cluster, capacity }
    });
    rated.collect()
}

/// Returns the cores on which this thread may run.
pub(in crate::runtime) fn of_this_thread() -> Option<Vec<u32>> {
    let set = sched_getaffinity(None).ok()?;
    let cores = 0..MAX_CORES;
    let allowed = |core: &u32| usize::try_from(*core).is_ok_and(|core| set.is_set(core));
    Some(cores.filter(allowed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(cores: &[u32], max_khz: Option<u64>, capacity: u64) -> RatedCluster {
        RatedCluster {
            cluster: CoreCluster {
                cores: cores.to_vec(),
                max_khz,
                part: Some("Cortex-A53".to_owned()),
            },
            capacity,
        }
    }

    fn chosen(text: &str, clusters: &[RatedCluster]) -> Result<String, String> {
        let choice: CoreChoice = text.parse()?;
        choice.among(clusters).map(|cores| core_list(&cores))
    }

    #[test]
    fn the_fastest_and_the_slowest_cluster_have_names() {
        let phone = [
            cluster(&[0, 1, 2, 3], Some(1_704_000), 250),
            cluster(&[4, 5, 6, 7], Some(2_367_000), 800),
            cluster(&[8], Some(2_914_000), 1024),
        ];
        for (text, expected) in [
            ("big", "8"),
            ("little", "0-3"),
            ("all", "0-8"),
            ("7,8", "7-8"),
        ] {
            assert_eq!(chosen(text, &phone).as_deref(), Ok(expected), "{text}");
        }
        let error = chosen("8-9,11", &phone).expect_err("two are unknown");
        assert!(
            error.starts_with("no core 9,11: expected some of 0-3 (Cortex-A53 up to 1.70 GHz)"),
            "{error}"
        );
        // The small cores of an ODROID-N2 have the higher frequency.
        let board = [
            cluster(&[2, 3, 4, 5], Some(1_800_000), 1024),
            cluster(&[0, 1], Some(1_896_000), 400),
        ];
        assert_eq!(chosen("big", &board).as_deref(), Ok("2-5"));
        assert_eq!(chosen("little", &board).as_deref(), Ok("0-1"));
    }

    #[test]
    fn cores_of_one_speed_are_neither_big_nor_little() {
        let server = [cluster(&[0, 1], None, 0)];
        for text in ["big", "little"] {
            let error = chosen(text, &server).expect_err("they are alike");
            assert!(
                error.contains("all cores are alike") && error.contains("0-1"),
                "{error}"
            );
        }
        assert_eq!(chosen("all", &server).as_deref(), Ok("0-1"));
        assert!(chosen("all", &[]).is_err());
    }
}
