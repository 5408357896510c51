//! `pkgtool attach`, and how commands reach gates.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::block_on::runtime;
use super::data_dir;
use super::exit::{Exit, Failure};
use super::local_catalog;
use super::output;
use super::serve::{log, second_signal, stop_signal};
use pkgtool_base::diagnostic::book;
use pkgtool_base::source;
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{self, InstanceSettings, InstanceToken, Security};
use pkgtool_serve::attach::{
    AttachedService, PackageOptions, TrainedServices, descriptor, hostname,
};
use pkgtool_serve::gateway::settings::Log;
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{BodyMemory, Catalog, Service, ServiceKind};

/// Maximum size of a file with tokens.
const MAX_TOKEN_FILE_BYTES: u64 = 1 << 20;
/// Memory for the bodies of requests. A single one may use half of it.
pub(super) const BODY_MEMORY_BYTES: usize = 512 << 20;
/// Name of the folder of trained services in the data directory.
const TRAINED_FOLDER: &str = "attached";
/// Maximum size of a certificate.
const MAX_CERTIFICATE_BYTES: u64 = 1 << 20;

/// Arguments of `pkgtool attach`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "attach"))]
pub(super) struct AttachArgs {
    /// Directories of packages. Each package with a token becomes an instance of its service
    #[arg(value_name = "PACKAGES", required = true)]
    packages: Vec<PathBuf>,

    #[command(flatten)]
    gate: ConnectionArgs,

    /// Maximum number of requests in flight for each gate
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    in_flight: u16,

    /// Directory for services that a gate trains [default: `attached` in the user's data directory]
    #[arg(long, value_name = "DIR")]
    trained: Option<PathBuf>,
}

/// Options of the connections to gates.
#[derive(Debug, clap::Args)]
pub(super) struct ConnectionArgs {
    /// Addresses of gates [default: `MLP_GRPC_HOSTS` or `MLP_GRPC_HOST`; port 443]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    gate: Vec<GateAddress>,

    /// File with the token of each service, one a line: ACCOUNT.MODEL.SECRET [default: `MLP_SERVICE_TOKEN`]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Connect without TLS [default: `MLP_GRPC_SECURE=false`]
    #[arg(long, conflicts_with = "ca")]
    plain: bool,

    /// Certificate of the authority that signed the gates' certificates, in the format PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Name of this machine for the gates' operators [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// Seconds for requests in flight to end after a signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(super) grace: u32,

    /// Path of the ONNX Runtime library [default: search for it]
    #[arg(long, value_name = "FILE")]
    pub(super) ort_lib: Option<PathBuf>,
}

/// Gates, tokens and protection, from arguments and the platform's variables.
pub(super) struct GateConnection {
    pub(super) gates: Vec<GateAddress>,
    pub(super) tokens: Vec<ServiceToken>,
    pub(super) security: Security,
}

impl ConnectionArgs {
    /// Reads the arguments, and the platform's variables where they are absent.
    pub(super) fn connection(&self) -> Result<GateConnection, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Ok(GateConnection {
            gates: gates(self, variable)?,
            tokens: tokens(self, variable)?,
            security: security(self, variable)?,
        })
    }
}

impl GateConnection {
    /// Returns the addresses, for a message.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.gates.iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}

/// Returns the name and the version of the program, for the gates' operators.
pub(super) fn image() -> String {
    format!("pkgtool {}", env!("CARGO_PKG_VERSION"))
}

const EXAMPLES: &str = "\
Examples:
  pkgtool attach packages/ --gate gate.example.org --token-file tokens.txt
  MLP_SERVICE_TOKEN=account.model.secret pkgtool attach hush-sentence/ --gate localhost:10601 --plain";

/// Runs the command.
pub(super) fn run(args: &AttachArgs) -> Result<Exit, Failure> {
    let connection = args.gate.connection()?;
    let (_log, _) = log::start(&Log::default()).map_err(Failure::Other)?;
    runtime()?.block_on(async {
        let engines = local_catalog::engines(args.gate.ort_lib.clone())?;
        let catalog = local_catalog::start(&args.packages, &engines)?;
        until_stopped(|stop| attach(args, connection, (catalog, engines), stop)).await
    })
}

/// Runs until the first signal to stop has taken effect, or a second one comes.
pub(super) async fn until_stopped<F: Future<Output = Result<(), Failure>>>(
    work: impl FnOnce(watch::Receiver<bool>) -> F,
) -> Result<Exit, Failure> {
    let stop = stop_signal(&Arc::default());
    let stop = stop.map_err(|error| Failure::Other(error.to_string()))?;
    let mut again = stop.clone();
    tokio::select! {
        done = work(stop) => done?,
        () = second_signal(&mut again) => {
            output::note("stopped at once after a second signal");
        }
    }
    Ok(Exit::Clean)
}

async fn attach(
    args: &AttachArgs,
    connection: GateConnection,
    (catalog, engines): (Arc<Catalog>, Arc<Engines>),
    stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let services = catalog.all();
    for unserved in catalog.unserved().iter() {
        let (path, reason) = (unserved.path.display(), &unserved.reason);
        output::print_message("warning", &format!("{path} is not attached: {reason}"));
    }
    let names = connection.names();
    let matched = matched(&services, connection.tokens)?;
    let mut text = String::new();
    let mut instances = JoinSet::new();
    let memory = BodyMemory::new(BODY_MEMORY_BYTES);
    let settings = |service: &Service, token: InstanceToken| InstanceSettings {
        gates: connection.gates.clone(),
        token,
        descriptor: descriptor(service),
        hostname: args.gate.name.clone().or_else(hostname),
        image: Some(image()),
        worker: None,
        security: connection.security.clone(),
        in_flight: usize::from(args.in_flight),
        grace: Duration::from_secs(u64::from(args.gate.grace)),
    };
    let all = matched.into_iter().map(|(service, token)| {
        let settings = settings(&service, token.secret);
        (service, settings)
    });
    let all: Vec<_> = all.collect();
    let trainable = all.iter().find(|(service, _)| service.is_trainable());
    let trained = match trainable {
        Some((_, settings)) => {
            let packages = package_options(settings.clone(), &engines, Arc::clone(&memory));
            trained_services(args, packages).await?
        }
        None => None,
    };
    for (service, mut settings) in all {
        settings.descriptor.fittable = trained.is_some() && service.is_trainable();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "attaching {} to {names}", service.name);
        let (found, name) = (Arc::clone(&catalog), service.name.clone());
        let find = move || found.find(local_catalog::OWNER, &name);
        let mut attached = AttachedService::new(find, Arc::clone(&memory));
        if let Some(trained) = &trained {
            attached = attached.training(Arc::clone(trained));
        }
        instances.spawn(instance::serve(settings, Arc::new(attached), stop.clone()));
    }
    output::print(&text)?;
    while instances.join_next().await.is_some() {}
    if let Some(trained) = trained {
        trained.stop().await;
    }
    catalog.stop().await;
    Ok(())
}

/// Returns the services that gates train here; `None` if another process has the user's directory for them.
async fn trained_services(
    args: &AttachArgs,
    packages: PackageOptions,
) -> Result<Option<Arc<TrainedServices>>, Failure> {
    let folder = data_dir::folder(args.trained.as_deref(), TRAINED_FOLDER);
    let folder = folder.map_err(Failure::Other)?;
    let trained = TrainedServices::open(folder.clone(), packages).await;
    let trained = trained.map_err(Failure::Other)?;
    if trained.is_none() {
        let shown = folder.display();
        let message = format!("{shown}: another pkgtool keeps its trained services there");
        if args.trained.is_some() {
            return Err(Failure::Other(format!("{message}; name another directory")));
        }
        let message = format!("{message}; to train here, too, name a directory with --trained");
        output::print_message("warning", &message);
    }
    Ok(trained)
}

/// Returns how folders of packages become instances.
pub(super) fn package_options(
    settings: InstanceSettings,
    engines: &Arc<Engines>,
    memory: Arc<BodyMemory>,
) -> PackageOptions {
    let engines = Arc::clone(engines);
    PackageOptions {
        settings,
        open: Box::new(move |folder| local_catalog::open(&[folder.to_owned()], &engines)),
        owner: local_catalog::OWNER,
        memory,
    }
}

/// Returns the addresses of the gates: the arguments, or the platform's variables.
fn gates(
    args: &ConnectionArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<GateAddress>, Failure> {
    if !args.gate.is_empty() {
        return Ok(args.gate.clone());
    }
    for name in ["MLP_GRPC_HOSTS", "MLP_GRPC_HOST"] {
        let Some(value) = variable(name) else {
            continue;
        };
        let gates = value.split(',').map(str::parse);
        let gates: Result<Vec<GateAddress>, _> = gates.collect();
        return gates.map_err(|error| Failure::Other(format!("{name}: {error}")));
    }
    Err(Failure::Nothing(
        "no gate is named: give its address with --gate, or set MLP_GRPC_HOST".to_owned(),
    ))
}

/// Returns how connections are protected.
fn security(
    args: &ConnectionArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Security, Failure> {
    let is_plain = || match variable("MLP_GRPC_SECURE").as_deref() {
        None | Some("true" | "1") => Ok(false),
        Some("false" | "0") => Ok(true),
        Some(other) => Err(Failure::Other(format!(
            "MLP_GRPC_SECURE is `{other}`: expected `true` or `false`"
        ))),
    };
    if let Some(path) = &args.ca {
        return Ok(Security::Tls(Some(read(path, MAX_CERTIFICATE_BYTES)?)));
    }
    if args.plain || is_plain()? {
        return Ok(Security::Plain);
    }
    Ok(Security::Tls(None))
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let read = source::read(path, most);
    read.map_err(|error| Failure::Other(format!("{}: cannot be read: {error}", path.display())))
}

/// The token of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceToken {
    /// The name or number of the service.
    model: String,
    pub(super) secret: InstanceToken,
}

impl ServiceToken {
    /// Reads `ACCOUNT.MODEL.SECRET`.
    fn of(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '.');
        let [account, model, secret] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let is_visible = text.chars().all(|c| c.is_ascii_graphic());
        if account.is_empty() || model.is_empty() || secret.is_empty() || !is_visible {
            return Err("expected a token ACCOUNT.MODEL.SECRET".to_owned());
        }
        Ok(Self {
            model: model.to_owned(),
            secret: InstanceToken::new(text.to_owned()),
        })
    }
}

/// Returns the tokens: those of the file, or the platform's variable. Errors do not show them.
fn tokens(
    args: &ConnectionArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<ServiceToken>, Failure> {
    let Some(path) = &args.token_file else {
        let Some(token) = variable("MLP_SERVICE_TOKEN") else {
            return Err(Failure::Nothing(
                "no token is given: name a file with --token-file, or set MLP_SERVICE_TOKEN"
                    .to_owned(),
            ));
        };
        let token = ServiceToken::of(token.trim());
        let token = token.map_err(|reason| Failure::Other(format!("MLP_SERVICE_TOKEN: {reason}")));
        return Ok(vec![token?]);
    };
    let shown = path.display();
    let text = String::from_utf8(read(path, MAX_TOKEN_FILE_BYTES)?);
    let text = text.map_err(|_| Failure::Other(format!("{shown}: expected text in UTF-8")))?;
    let lines = text.lines().enumerate();
    let lines = lines.map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let tokens = lines.map(|(at, line)| {
        let token = ServiceToken::of(line);
        token.map_err(|reason| Failure::Other(format!("{shown}:{at}: {reason}")))
    });
    let tokens: Vec<ServiceToken> = tokens.collect::<Result<_, _>>()?;
    if tokens.is_empty() {
        return Err(Failure::Nothing(format!("{shown}: has no token")));
    }
    Ok(tokens)
}

/// Returns each service with its token: the only service with the only token, otherwise by the names in the tokens.
fn matched(
    services: &[Arc<Service>],
    tokens: Vec<ServiceToken>,
) -> Result<Vec<(Arc<Service>, ServiceToken)>, Failure> {
    let runnable = |service: &&Arc<Service>| match &service.kind {
        ServiceKind::Device(device) => device.description().runnable,
        _ => false,
    };
    let services: Vec<&Arc<Service>> = services.iter().filter(runnable).collect();
    if let ([service], [token]) = (&*services, &*tokens) {
        return Ok(vec![(Arc::clone(service), token.clone())]);
    }
    let names: Vec<&str> = services.iter().map(|service| &*service.name).collect();
    let of_token = |token: ServiceToken| {
        let found = services.iter().find(|service| service.name == token.model);
        let service = found.ok_or_else(|| {
            Failure::Other(format!(
                "a token is for the service `{}`, which no package here provides: expected {}",
                token.model,
                if names.is_empty() {
                    "packages that an engine here runs".to_owned()
                } else {
                    names.join(", ")
                }
            ))
        })?;
        Ok((Arc::clone(service), token))
    };
    tokens.into_iter().map(of_token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_service() {
        let token = ServiceToken::of("acme.hush.s.e.cret").expect("it is one");
        assert_eq!(token.model, "hush");
        assert!(!format!("{token:?}").contains("s.e.cret"));
        for text in [
            "",
            "a",
            "a.b",
            "a.b.",
            ".b.c",
            "a..c",
            "a.b.c d",
            "a.b.c\u{7f}",
        ] {
            assert!(ServiceToken::of(text).is_err(), "{text}");
        }
    }
}
