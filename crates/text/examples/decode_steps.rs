//! `decode_steps MODEL LIBRARY THREADS PROMPT TOKENS ROUNDS`: feeds a prompt of so many tokens, decodes so
//! many greedily, and prints for each round what prefill and decode took: CPU time of this process and the
//! worker's together, and the time on the wall, in seconds. Without a library (`-`) the embedded engine runs
//! the model.
//!
//! Called with `worker` it is the worker, as the tool itself is.

#![expect(clippy::print_stdout, reason = "a benchmark reads the result")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pkgtool_engine::runtime::process::WORKER_ARGUMENT;
use pkgtool_engine::runtime::worker::{Launcher, Worker, serve};
use pkgtool_engine::tensor::Signature;
use pkgtool_engine::{LoadOptions, LoadRequest};
use pkgtool_model as model;
use pkgtool_text::decoder::{Decoder, DecoderModel, SessionStepRunner, TokenDecoder};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == WORKER_ARGUMENT)
    {
        return Ok(serve()?);
    }
    let [model, library, threads, prompt, tokens, rounds] = arguments.as_slice() else {
        return Err("MODEL LIBRARY THREADS PROMPT TOKENS ROUNDS".into());
    };
    let mut decoder = load(model, library, threads.parse()?)?;
    let vocabulary = u32::try_from(decoder.vocabulary())?;
    let count: u32 = prompt.parse()?;
    let prompt: Vec<u32> = (0..count)
        .map(|place| (place * 7 + 3) % vocabulary)
        .collect();
    let worker = decoder.steps().0.id();
    for _ in 0..rounds.parse()? {
        decoder.cut(0)?;
        let start = Clock::now(worker)?;
        let mut next = best(decoder.feed(&prompt, &|| true)?);
        let prefilled = Clock::now(worker)?;
        let mut text = vec![next];
        for _ in 0..tokens.parse()? {
            next = best(decoder.feed(&[next], &|| true)?);
            text.push(next);
        }
        let end = Clock::now(worker)?;
        let [prefill, decode] = [prefilled.since(&start), end.since(&prefilled)];
        println!(
            "{}",
            serde_json::json!({ "prefill": prefill, "decode": decode, "text": text })
        );
    }
    Ok(())
}

fn load(
    model: &str,
    library: &str,
    threads: usize,
) -> Outcome<TokenDecoder<SessionStepRunner<Worker>>> {
    let path = PathBuf::from(model);
    let (info, _) = model::open(&path)?;
    let signature = Signature::of(&info.methods[0], None)?;
    let found = DecoderModel::recognise(&path, &info, &signature, None)?;
    let request = LoadRequest {
        model: path,
        signature,
        options: LoadOptions {
            threads: Some(threads),
            library: (library != "-").then(|| PathBuf::from(library)),
            carrying: found.carrying.clone(),
            ..LoadOptions::default()
        },
    };
    let engine = if library == "-" { "tract" } else { "ort" };
    let worker = Launcher::new()?.load(engine, &request)?;
    Ok(TokenDecoder::new(found, SessionStepRunner(worker)))
}

fn best(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (place, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = place;
        }
    }
    u32::try_from(best).unwrap_or(0)
}

/// CPU time of both processes, and the wall's, in seconds.
struct Clock {
    cpu: f64,
    wall: Instant,
}

impl Clock {
    fn now(worker: u32) -> Outcome<Self> {
        // The count of a thread that runs is brought up to date when it pauses.
        sleep(Duration::from_millis(1));
        let cpu = cpu("self")? + cpu(&worker.to_string())?;
        let wall = Instant::now();
        Ok(Self { cpu, wall })
    }

    fn since(&self, before: &Self) -> [f64; 2] {
        let wall = self.wall.duration_since(before.wall);
        [self.cpu - before.cpu, wall.as_secs_f64()]
    }
}

/// Nanoseconds on a processor of all threads of a process, as the scheduler counts them.
fn cpu(process: &str) -> Outcome<f64> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split_whitespace().next().ok_or("no count")?;
        nanoseconds += first.parse::<u64>()?;
    }
    #[expect(clippy::cast_precision_loss, reason = "times of some seconds")]
    Ok(nanoseconds as f64 / 1e9)
}
