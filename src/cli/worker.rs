//! `pkgtool worker`.

use std::path::PathBuf;
use std::time::Duration;

use super::attach::{self, ConnectionArgs};
use super::block_on::runtime;
use super::data_dir;
use super::exit::{Exit, Failure};
use super::local_catalog;
use super::output;
use super::serve::log;
use pkgtool_base::diagnostic::book;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_gate::instance::InstanceSettings;
use pkgtool_gate::protocol::{ServiceDescriptorProto, WorkerProto};
use pkgtool_serve::attach::{MachineOptions, hostname, serve_assigned};
use pkgtool_serve::gateway::settings::Log;
use pkgtool_serve::package::PackageCache;
use pkgtool_serve::service::BodyMemory;

/// Name of the folder of packages in the data directory.
const CACHE_FOLDER: &str = "worker";
/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;

/// Arguments of `pkgtool worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "worker"))]
pub(super) struct WorkerCommandArgs {
    #[command(flatten)]
    gate: ConnectionArgs,

    /// Maximum number of requests in flight for each service
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    capacity: u16,

    /// Directory for fetched packages [default: `worker` in the user's data directory]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,

    /// Maximum size of fetched packages, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    cache_size: u64,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool worker --gate gateway.example.org:10601 --token-file token.txt
  MLP_SERVICE_TOKEN=local.*.wt_… pkgtool worker --gate 10.0.0.5:10601 --plain --capacity 4";

/// Runs the command.
pub(super) fn run(args: &WorkerCommandArgs) -> Result<Exit, Failure> {
    let connection = args.gate.connection()?;
    let [token] = &connection.tokens[..] else {
        let message = "a worker has one token: create it with `pkgtool workers token create --any`";
        return Err(Failure::Other(message.to_owned()));
    };
    let folder = data_dir::folder(args.cache.as_deref(), CACHE_FOLDER).map_err(Failure::Other)?;
    let cache = PackageCache::open(folder, args.cache_size.saturating_mul(GIB));
    let cache = cache.map_err(|error| Failure::Other(error.to_string()))?;
    let worker = WorkerProto {
        backends: Backend::ALL.iter().map(|it| it.name().to_owned()).collect(),
        memory_bytes: Machine::this().memory_bytes,
    };
    let settings = InstanceSettings {
        gates: connection.gates.clone(),
        token: token.secret.clone(),
        descriptor: ServiceDescriptorProto {
            name: "worker".to_owned(),
            ..ServiceDescriptorProto::default()
        },
        hostname: args.gate.name.clone().or_else(hostname),
        image: Some(attach::image()),
        worker: Some(worker),
        security: connection.security.clone(),
        in_flight: usize::from(args.capacity),
        grace: Duration::from_secs(u64::from(args.gate.grace)),
    };
    let (_log, _) = log::start(&Log::default()).map_err(Failure::Other)?;
    runtime()?.block_on(async {
        let engines = local_catalog::engines(args.gate.ort_lib.clone())?;
        let memory = BodyMemory::new(attach::BODY_MEMORY_BYTES);
        let packages = attach::package_options(settings, &engines, memory);
        let options = MachineOptions { packages, cache };
        output::print(&format!("attaching to {}\n", connection.names()))?;
        attach::until_stopped(async |stop| {
            serve_assigned(options, stop).await;
            Ok(())
        })
        .await
    })
}
