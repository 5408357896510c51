//! `pkgtool diff`.

use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;

use super::exit::{self, Exit, Failure};
use super::far::{self, Far, FarArgs};
use super::output;
use pkgtool_base::diagnostic::TextTable;
use pkgtool_base::diagnostic::book;
use pkgtool_base::git::Repository;
use pkgtool_base::package::Roots;
use pkgtool_check::diff::render::{DiffFormat, DiffStyle};
use pkgtool_check::diff::{
    self, ComparedTree, Difference, KINDS, Reading, WrittenTree, write_revision,
};

/// Arguments of `pkgtool diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(exit::DIFF_HELP, "diff"))]
pub(super) struct DiffArgs {
    /// Older version: a directory, a config, `REV:PATH` in the Git repository around the working
    /// directory, or an address (https://, hf:OWNER/REPOSITORY@REV) of which only headers are read.
    /// With --git, the directory or config to compare
    #[arg(required_unless_present_any = ["git", "kinds"])]
    old: Option<PathBuf>,

    /// Newer version, in the same forms
    #[arg(required_unless_present_any = ["git", "kinds"], conflicts_with = "git")]
    new: Option<PathBuf>,

    /// Compare this Git revision of OLD, or of the working directory, with the files on disk
    #[arg(long, value_name = "REV")]
    git: Option<String>,

    /// Output format
    #[arg(long, value_enum, default_value_t = DiffFormatArg::Human)]
    format: DiffFormatArg,

    /// Exit with code 1 if there are changes of at least this level
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = FailOn::Breaking)]
    fail_on: FailOn,

    /// Don't open model files; compare only configs, file names and sizes
    #[arg(long)]
    no_model: bool,

    /// Print all kinds of changes and their levels as a Markdown table
    #[arg(long, exclusive = true)]
    kinds: bool,

    #[command(flatten)]
    far: FarArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormatArg {
    /// One change per line
    Human,
    /// One JSON document
    Json,
    /// Markdown, for a release note
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Changes that break users of the package
    Breaking,
    /// Breaking and compatible changes
    Compatible,
    /// Any change
    Any,
    /// Never
    None,
}

/// One side of the comparison and its display name. The files of a Git revision exist as long as
/// this value.
struct DiffSide {
    name: String,
    tree: ComparedTree,
    far: Option<Far>,
    _written: Option<WrittenTree>,
}

/// Runs the command.
pub(super) fn run(args: &DiffArgs) -> Result<Exit, Failure> {
    if args.kinds {
        output::print(&kinds())?;
        return Ok(Exit::Clean);
    }
    let reading = Reading {
        open_models: !args.no_model,
    };
    let (old, new) = args.sides(reading)?;
    let difference = diff::compare(&old.tree, &new.tree, reading);
    for side in [&old, &new] {
        side.far.as_ref().map_or(Ok(()), Far::check)?;
    }
    for note in &difference.notes {
        output::note(note);
    }
    if difference.is_void() {
        return Err(Failure::Nothing(format!(
            "nothing to compare in {} and {}: expected packages with a config.json in a directory named \
             after its backend",
            old.name, new.name
        )));
    }
    let style = DiffStyle {
        old: &old.name,
        new: &new.name,
        color: output::stdout_has_color(),
    };
    let format = match args.format {
        DiffFormatArg::Human => DiffFormat::Human,
        DiffFormatArg::Json => DiffFormat::Json,
        DiffFormatArg::Markdown => DiffFormat::Markdown,
    };
    let mut text = Vec::new();
    format.render(&difference, &style, &mut text)?;
    let printed = output::print(&String::from_utf8_lossy(&text));
    match printed {
        // A closed pipe does not change the exit code.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(args.fail_on.exit(&difference))
}

impl DiffArgs {
    fn sides(&self, reading: Reading) -> Result<(DiffSide, DiffSide), Failure> {
        let here = PathBuf::from(".");
        if let Some(revision) = &self.git {
            let path = self.old.as_ref().unwrap_or(&here);
            let old = revision_of(revision, path, reading)?;
            let tree = ComparedTree::at(path);
            let name = path.display().to_string();
            // A path that was deleted from the disk may exist in the revision.
            return Ok((old, on_disk(name, tree)));
        }
        let side = |path: &Option<PathBuf>| self.open(path.as_ref().unwrap_or(&here), reading);
        Ok((side(&self.old)?, side(&self.new)?))
    }

    /// Opens a source as a tree. This is the only place that interprets the forms of OLD and NEW.
    fn open(&self, source: &Path, reading: Reading) -> Result<DiffSide, Failure> {
        let name = source.display().to_string();
        if source.symlink_metadata().is_ok() {
            return Ok(on_disk(name, ComparedTree::at(source)));
        }
        let far = far::open(&[source.to_owned()], &self.far, !self.no_model)?;
        if let Some(mirror) = far.paths().first().filter(|path| *path != source) {
            let mut side = on_disk(name, ComparedTree::at(mirror));
            side.far = Some(far);
            return Ok(side);
        }
        match name.split_once(':') {
            Some((revision, path)) if !revision.is_empty() && !path.starts_with("//") => {
                named_revision(revision, path, reading)
            }
            _ => Err(Failure::Other(format!(
                "{name}: no such file or directory; write a revision of the Git repository here as \
                 `REV:PATH`, for example `v1.0:.`"
            ))),
        }
    }
}

impl FailOn {
    fn exit(self, difference: &Difference) -> Exit {
        let summary = difference.summary();
        let counts = match self {
            Self::Breaking => summary.breaking,
            Self::Compatible => summary.breaking + summary.compatible,
            Self::Any => difference.changes.len(),
            Self::None => 0,
        };
        if counts > 0 {
            Exit::Findings
        } else {
            Exit::Clean
        }
    }
}

fn on_disk(name: String, tree: ComparedTree) -> DiffSide {
    DiffSide {
        name,
        tree,
        far: None,
        _written: None,
    }
}

/// Opens `REV:PATH`. As in Git, the path starts at the root of the repository, or at the working
/// directory if it begins with a dot.
fn named_revision(revision: &str, path: &str, reading: Reading) -> Result<DiffSide, Failure> {
    let here = Path::new(".");
    if path.starts_with('.') {
        let mut side = revision_of(revision, &here.join(path), reading)?;
        side.name = format!("{revision}:{path}");
        return Ok(side);
    }
    let repository = Repository::containing(here).map_err(other)?;
    let path = Path::new(path);
    if path.components().any(|part| part == Component::ParentDir) || path.is_absolute() {
        return Err(Failure::Other(format!(
            "{revision}:{}: expected a path relative to the root of the repository after the revision",
            path.display()
        )));
    }
    written_revision(&repository, revision, path, reading)
}

/// Opens the revision of the file or directory at `path` on the disk.
fn revision_of(revision: &str, path: &Path, reading: Reading) -> Result<DiffSide, Failure> {
    let repository = Repository::containing(path).map_err(other)?;
    let roots = Roots::new();
    let top = repository.top();
    let absolute = roots.absolute(path);
    // Git returns the root of the repository with links resolved.
    let real = absolute.canonicalize().unwrap_or_else(|_| absolute.clone());
    let below = real
        .strip_prefix(top)
        .or_else(|_| absolute.strip_prefix(top));
    let below = below.map_err(|_| {
        let (path, top) = (path.display(), top.display());
        Failure::Other(format!(
            "{path}: not below {top}, the root of its repository"
        ))
    })?;
    written_revision(&repository, revision, below, reading)
}

fn written_revision(
    repository: &Repository,
    revision: &str,
    path: &Path,
    reading: Reading,
) -> Result<DiffSide, Failure> {
    let written = write_revision(repository, revision, path, reading).map_err(other)?;
    Ok(DiffSide {
        name: match path.to_string_lossy() {
            path if path.is_empty() => revision.to_owned(),
            path => format!("{revision}:{path}"),
        },
        tree: written.tree.clone(),
        far: None,
        _written: Some(written),
    })
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

/// Returns all kinds of changes as a Markdown table.
fn kinds() -> String {
    let mut table = TextTable::of_text(3);
    table.row(["kind", "level", "what changed"]);
    for kind in KINDS {
        let name = format!("`{}`", kind.name);
        table.row([&name, kind.level.name(), kind.meaning]);
    }
    table.to_markdown()
}
