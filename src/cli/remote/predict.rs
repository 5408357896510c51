//! `pkgtool predict`.

use super::super::exit::{Exit, Failure};
use super::data::ContentArgs;
use super::{RemoteArgs, print_answer};
use pkgtool_base::diagnostic::book;

/// Arguments of `pkgtool predict`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "serve/api"))]
pub(in super::super) struct PredictArgs {
    /// Service to call: its name, or ACCOUNT/NAME
    service: String,

    #[command(flatten)]
    content: ContentArgs,

    #[command(flatten)]
    remote: RemoteArgs,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool predict murmur_vad --input @frame.npy
  pkgtool predict sum --input a=[1,2] --input b=[3,4] --config '{\"precision\":\"fp32\"}'
  pkgtool predict acme/echo --data @request.json --url http://device:8080";

/// Runs the command.
pub(super) async fn run(args: &PredictArgs) -> Result<Exit, Failure> {
    let client = args.remote.client()?;
    let service = args.remote.service(&args.service);
    let answer = client.predict(&service, &args.content.request()?).await?;
    print_answer(&answer)?;
    Ok(Exit::Clean)
}
