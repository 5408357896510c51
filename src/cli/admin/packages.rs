//! `pkgtool admin publish`, `pkgtool admin packages` and `pkgtool admin unpublish`: packages that all servers of a
//! database serve.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::super::directory::{DataDirectoryArgs, shown};
use super::super::exit::{Exit, Failure};
use super::super::report::{self, CommandReport};
use super::super::{objects, output};
use super::{SharedDatabase, bytes};
use pkgtool_base::diagnostic::{TextTable, book};
use pkgtool_serve::account::{Account, Accounts};
use pkgtool_serve::gateway::settings::LOCAL_ACCOUNT;
use pkgtool_serve::objects::ObjectsUrl;
use pkgtool_serve::package::{
    NewPackage, PackageKind, PackageObjects, PackagePublisher, PublishedPackage,
};
use pkgtool_serve::service::check_packages;

/// Number of digits of a version that are shown.
const SHOWN_DIGITS: usize = 12;

/// Arguments of `pkgtool admin publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "serve/cluster"))]
pub(in super::super) struct PublishArgs {
    /// Directory of one or several packages
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// Name for what is published, which a later version takes the place of [default: the name of the directory]
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    servers: ServersArgs,
}

/// Arguments of `pkgtool admin packages`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct PackagesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Arguments of `pkgtool admin unpublish`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct UnpublishArgs {
    /// Name of the package, as `pkgtool admin packages` shows it
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    servers: ServersArgs,
}

/// The servers, and the account whose packages are changed.
#[derive(Debug, clap::Args)]
struct ServersArgs {
    /// Account that owns the services
    #[arg(long, default_value = LOCAL_ACCOUNT)]
    account: String,

    /// Place of the servers' objects, `s3://BUCKET/PREFIX` or `file:///FOLDER` [default: that of the servers that run]
    #[arg(long, value_name = "URL", env = "PKGTOOL_OBJECTS_URL")]
    objects: Option<ObjectsUrl>,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

const EXAMPLES: &str = "\
Example:
  pkgtool admin publish models/spotter --database postgres://…/gateway --objects s3://gateway/production

The packages are checked first. Servers fetch them within seconds, and replace their services when the new ones are
ready.";

/// What a command on published packages works with.
struct Publishing {
    publisher: PackagePublisher,
    account: Account,
}

/// Lets all servers serve the packages of a directory.
pub(super) async fn publish(args: &PublishArgs) -> Result<Exit, Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => directory_name(&args.directory)?,
    };
    let services = check_packages(&args.directory).map_err(Failure::Other)?;
    let Publishing { publisher, account } = args.servers.open().await?;
    let new = NewPackage {
        owner: account.id,
        owner_name: &account.name,
        name: &name,
        kind: PackageKind::Published,
        directory: &args.directory,
    };
    let done = publisher.publish(new).await?;
    output::print(&format!(
        "published {}/{name} {}: {} files of {}, {} of them new; services: {}\n",
        account.name,
        short(&done.package.version),
        done.files,
        bytes(done.package.bytes),
        done.written,
        services.join(", ")
    ))?;
    Ok(Exit::Clean)
}

/// Lists the published packages.
pub(super) async fn list(args: &PackagesArgs) -> Result<Exit, Failure> {
    let packages = SharedDatabase::open(&args.place)
        .await?
        .packages
        .list()
        .await?;
    report::print(&PackageList(packages), args.json)?;
    Ok(Exit::Clean)
}

/// Lets no server serve a package any more.
pub(super) async fn unpublish(args: &UnpublishArgs) -> Result<Exit, Failure> {
    let Publishing { publisher, account } = args.servers.open().await?;
    let (name, owner) = (&args.name, &account.name);
    if !publisher.remove(account.id, name).await? {
        return Err(Failure::Nothing(format!(
            "{owner}/{name}: no published package has this name; `pkgtool admin packages` shows them"
        )));
    }
    output::print(&format!("{owner}/{name} is no longer published\n"))?;
    Ok(Exit::Clean)
}

impl ServersArgs {
    async fn open(&self) -> Result<Publishing, Failure> {
        let SharedDatabase {
            stores,
            servers,
            packages,
        } = SharedDatabase::open(&self.place).await?;
        let store = stores.accounts().await?;
        let account = Accounts::new(store.clone()).find(&self.account).await?;
        let known = servers.object_place().await?;
        let url = match (&self.objects, known) {
            (Some(given), Some(known)) if *given != known => {
                return Err(Failure::Other(format!(
                    "the servers of this database keep objects in {known}, not in {given}"
                )));
            }
            (Some(given), _) => given.clone(),
            (None, Some(known)) => known,
            (None, None) => {
                return Err(Failure::Other(
                    "packages are published through the place of objects that all servers share, and none is known; \
                     set --objects s3://BUCKET/PREFIX or file:///FOLDER, as for the servers"
                        .to_owned(),
                ));
            }
        };
        let storage = objects::open_storage(&url, true, &*store).await?;
        Ok(Publishing {
            publisher: PackagePublisher::new(packages, PackageObjects::in_storage(&storage)),
            account,
        })
    }
}

/// Returns the name of a directory.
fn directory_name(directory: &Path) -> Result<String, Failure> {
    let shown = directory.display();
    let real = directory.canonicalize();
    let real = real.map_err(|error| Failure::Nothing(format!("{shown}: {error}")))?;
    let name = real.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Failure::Other(format!("{shown}: no name; give one by --name")))?;
    Ok(name.to_owned())
}

fn short(version: &str) -> &str {
    version.get(..SHOWN_DIGITS).unwrap_or(version)
}

/// Published packages, as commands show them.
struct PackageList(Vec<PublishedPackage>);

impl CommandReport for PackageList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        let mut table = TextTable::of_text(6);
        table.row(["account", "name", "kind", "version", "size", "published"]);
        for package in &self.0 {
            table.row([
                package.owner_name.clone(),
                package.name.clone(),
                package.kind.word().to_owned(),
                short(&package.version).to_owned(),
                bytes(package.bytes),
                shown(package.published_at),
            ]);
        }
        write!(text, "{table}")
    }

    fn document(&self) -> impl Serialize {
        let packages = self.0.iter().map(|package| {
            json!({
                "account": package.owner_name,
                "name": package.name,
                "kind": package.kind.word(),
                "version": package.version,
                "bytes": package.bytes,
                "publishedAt": package.published_at.to_iso(),
            })
        });
        packages.collect::<Vec<_>>()
    }
}
